-- For each span the runs that overlap it: {first, length, data}.
local answers = {}
for at, span in ipairs(asked[1]) do
  answers[at] = runs_of(unpack(span))
end
return answers
