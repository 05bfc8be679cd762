"""Rules of the source: sizes, names, system calls, and layers as ARCHITECTURE.md draws them."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from paths import ROOT

SOURCE = ROOT / "src" / "holdfast"
LINES, COLUMNS = 600, 120
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
GENERATED = {"client/sync.py", "workspace/sync.py"}  # by tools/make_sync.py
# Names of one word that say how something came about, or is done, where a noun would say what it is.
PARTICIPLE = re.compile(r"_?(?:[A-Z][a-z]+(?:ed|ing)|Begun|Found|Given|Held|Known|Left|Met|Said|Seen|Taken|Told)")
NOUNS = {"Finding", "Numbering", "Recording", "Staging", "_Listing"}
# Functions of one word that is no verb: a participle, an adverb, a preposition or an adjective. Methods that users call
# may have such a name (`client.tagged(name)`), and functions within functions, which are read where they are used.
NO_VERB = re.compile(
    r"_?(?:\w+ed"
    "|about|above|after|again|all|alone|always|apart|around|asking|at|bad|before|begun|below|beside|between|both"
    "|bound|briefly|built|chosen|dead|doing|done|down|ear|everything|everywhere|exactly|fair|few|following|found"
    "|given|gone|granted|heard|held|here|in|inside|just|kept|known|lacking|late|later|left|less|like|listing|live"
    "|made|meant|meets|met|missing|more|nearest|never|next|no|nobody|nonsense|nothing|nowhere|on|once|one|only"
    "|opening|or|other|our|over|own|plain|plainly|plus|quiet|reading|rest|said|same|seen|sent|shown|since|some"
    "|somewhere|such|taken|taking|then|there|these|this|together|told|too|until|waiting|wanted|went|what|when"
    "|where|whole|why|within|wrong"
    ")"
)
VERBS = {"feed", "need", "shed", "embed", "seed"}
# Functions whose name begins with a preposition, a negation or a participle. Some are named for what they return, as
# everywhere in Python (`with_…`, `as_…`, `to_…`), others for the moment at which they are called (`on_…`, `after_…`).
NO_BEGINNING = re.compile(
    "_?(?:all|asked|at|beside|given|gone|in|kept|left|made|not|of|or|over|said|seen|taken|told|up|what|when|where|who)"
    "_.+"
)
FIELDS = re.compile(r".*_fields|all_changes")  # nouns
# What modules of the first versions were called, and no module is to be called again.
OPAQUE = re.compile(
    "ahead|aftermath|asked|asking|begin|beside|calling|cached|carrying_out|checking|chain|child|copying|deciding|differ"
    "|doubts|ear|effecting|facade|faces|filling|findings|frames|graves|groups|guards|here|hints|holds|homes|inflating"
    "|keepers|keeping|left_out|line|link|matching|meeting|moving|notebook|opening|overview|packing|places|plain"
    "|quick_look|reach|reading|restoring|rolling_back|runopening|sampling|saying|services|sharing|shelf|stepping"
    "|suspecting|taking|tasking|telling|tidying|travelling|undoing|vantages|walking|watching|witness"
)

# Classes of the first versions whose names said nothing, and no class is to have again.
OPAQUE_CLASSES = re.compile(
    "_?(?:Aftermath|Apart|Base|Copies|Core|Direct|Doubt|Ear|FilesGoBack|Grave|Graveyard|Here|Hints|Inline|Keeper|Line"
    "|LineMemory|Live|LoopBridge|Many|Marks|Offload|One|Options|Places|Program|Reach|Restorable|Restores|Room"
    "|RunInfo|RunWrite|Services|Shelf|StoreKeeper|Stretch|Survey|Taker|Trail|Vantages?|Way|Wishes|Witness)"
)
# Pronouns, adverbs and words for speech, where a variable or parameter needs the noun of the thing.
OPAQUE_VARIABLES = re.compile(
    "_*(?:anyone|beside|hear|here|its?|look|met|news|of_one|of_whom|one|said|tell|there|things?|told|what|who|whom)",
    re.IGNORECASE,
)


@cache
def modules() -> dict[str, str]:
    return {str(path.relative_to(SOURCE)): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}


class Names(NamedTuple):
    """The names that a module defines.

    Classes have whether each is at the top. Variables include parameters and attributes, but no fields of a class,
    which may be public or stored.
    """

    classes: list[tuple[str, bool]]
    functions: set[str]
    variables: set[str]


@cache
def names() -> dict[str, Names]:
    """Return the names of each module. Parsing all of them takes a while, and their trees much memory."""
    return {name: names_of(ast.parse(text)) for name, text in modules().items()}


def names_of(tree: ast.Module) -> Names:
    classes = [(node.name, node in tree.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return Names(classes, functions_of(tree), variables_of(tree))


def test_no_two_public_classes_have_one_name():
    top = [(name, where) for where, found in names().items() for name, is_top in found.classes if is_top]
    times = Counter(name for name, _ in top if not name.startswith("_"))
    assert [one for one in top if times[one[0]] > 1] == []


def test_no_class_is_named_by_a_participle_or_gerund_alone():
    classes = {name for found in names().values() for name, _ in found.classes}
    assert {name for name in classes if PARTICIPLE.fullmatch(name)} - NOUNS == set()


def functions_of(tree: ast.Module) -> set[str]:
    """Return the names of functions of a module, and of private methods; without properties."""
    holders = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    found = [(holder, node) for holder in holders for node in holder.body if isinstance(node, FUNCTIONS)]
    return {
        node.name
        for holder, node in found
        if (holder is tree or node.name.startswith("_"))
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def variables_of(tree: ast.Module) -> set[str]:
    """Return the names of variables, parameters and attributes that a module assigns, without fields of classes."""
    fields = {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) if node not in fields:
                found.add(name)
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
                found.add(name)
    return found


def has_no_verb(function: str) -> bool:
    """Return whether a function is named by a participle or adverb alone, or begins with one or with a preposition."""
    if "_" in function.strip("_"):
        return NO_BEGINNING.fullmatch(function) is not None and FIELDS.fullmatch(function) is None
    return NO_VERB.fullmatch(function) is not None and function.strip("_") not in VERBS


def test_no_function_is_named_by_a_participle_adverb_or_preposition():
    wrong = {
        f"{name}: {function}"
        for name, found in names().items()
        if not name.startswith("cli/commands/")  # named like the command
        for function in found.functions
        if has_no_verb(function)
    }
    assert wrong == set()


def test_a_function_without_a_verb_is_found():
    methods = "    def _kept(self): ...\n    @property\n    def _left(self): ...\n    def met(self): ...\n"
    text = f"def _given(): ...\nclass A:\n{methods}"
    assert functions_of(ast.parse(text)) == {"_given", "_kept"}
    for name in ("_given", "of_tree", "_not_found", "left_out"):
        assert has_no_verb(name)
    for name in ("find_given", "_feed", "with_tag", "left_fields", "list_left_out"):
        assert not has_no_verb(name)


def test_no_class_has_an_opaque_name():
    classes = {name for found in names().values() for name, _ in found.classes}
    assert {name for name in classes if OPAQUE_CLASSES.fullmatch(name)} == set()


def test_no_variable_or_parameter_has_an_opaque_name():
    assert {
        f"{name}: {variable}"
        for name, found in names().items()
        for variable in found.variables
        if OPAQUE_VARIABLES.fullmatch(variable)
    } == set()


def test_an_opaque_variable_is_found_unless_it_is_a_field():
    text = "class A:\n    what: str\n    def f(self, told):\n        self._met = [one for one in told]\n"
    found = variables_of(ast.parse(f"{text}match 1:\n    case said:\n        pass\n"))
    assert {name for name in found if OPAQUE_VARIABLES.fullmatch(name)} == {"told", "_met", "one", "said"}
    assert not any(map(OPAQUE_VARIABLES.fullmatch, ("listed", "owner", "seller", "within", "themes")))


def test_no_module_has_an_opaque_name():
    assert [name for name in modules() if OPAQUE.fullmatch(Path(name).stem)] == []


def test_no_module_is_too_long():
    long = {name: text.count("\n") for name, text in modules().items() if text.count("\n") > LINES}
    assert set(long) <= GENERATED, long


def test_no_line_of_code_is_too_long():
    """Ruff, too, looks at lines, but passes over those that end with a comment for it."""
    files = [
        path for folder in ("src", "tests", "benchmarks", "examples", "tools") for path in (ROOT / folder).rglob("*.py")
    ]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert wrong == []


def test_one_module_makes_system_calls_by_ctypes():
    assert [name for name, text in modules().items() if imports_ctypes(text)] == ["backends/system_calls.py"]


def imports_ctypes(text: str) -> bool:
    return re.search(r"^\s*(?:import|from) ctypes\b", text, re.MULTILINE) is not None


def test_ctypes_is_found_however_it_is_imported():
    assert imports_ctypes("if x:\n    from ctypes import CDLL\n")
    assert imports_ctypes("import ctypes\n")
    assert not imports_ctypes('"""No ctypes here."""\n')


def test_nothing_but_sqlite_writes_into_a_database():
    """The one place that writes at an offset is the files backend's, to files of its own format."""
    writing = re.compile(r"\bos\.(?:pwritev?|write)\(|\.write_(?:bytes|text)\(|\bopen\([^)]*[\"'](?:[wax]|r\+|rb\+)")
    assert [name for name, text in modules().items() if "pwrite" in text] == ["backends/files/disk.py"]
    assert [name for name in modules() if name.startswith("backends/sqlite/") and writing.search(modules()[name])] == []


def test_nothing_changes_a_setting_of_the_whole_process():
    switch = re.compile(r"\bgc\.(?:disable|enable|freeze|set_threshold)\(|\bset(?:recursionlimit|switchinterval)\(")
    assert [name for name, text in modules().items() if switch.search(text)] == []


def layers_enforced() -> list[set[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    [contract] = [entry for entry in settings["contracts"] if entry["type"] == "layers"]
    return [set(re.split(r" *[:|] *", layer)) for layer in contract["layers"]]


def layers_drawn() -> list[set[str]]:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## Layers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", row)) for row in rows]


def test_the_layers_that_are_drawn_are_those_that_are_enforced():
    frameworks = {Path(name).stem for name in modules() if "/" not in name} & {
        Path(name).parts[1] for name in modules() if name.startswith("adapters/")
    }
    drawn = [layer - {"framework"} | frameworks if "framework" in layer else layer for layer in layers_drawn()]
    assert drawn == layers_enforced()
    # What stands apart is named below the table: the package itself, and the suite for backends.
    there = {Path(name).parts[0].removesuffix(".py") for name in modules()}
    assert there - set().union(*drawn) == {"__init__", "testing"}
