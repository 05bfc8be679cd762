"""The contract: segments."""

from __future__ import annotations

from holdfast.backends.port import Commit, Segment, SegmentDelete, SegmentInfo, SegmentWrite, Span
from holdfast.testing.harness import OTHER_TREE, TREE, Harness, append, check, check_equal, head

LOG = 7


class SegmentContract(Harness):
    def three_segments(self) -> None:
        """Write a log that holds [0, 3), [3, 5) and [5, 6)."""
        self.write(segments=(append(LOG, 0, b"a", b"b", b"c"),))
        self.write(segments=(append(LOG, 3, b"d", b"e"),))
        self.write(segments=(append(LOG, 5, b"f"),))

    def bounds(self, first: int, end: int) -> list[tuple[int, int]]:
        return [(segment.first, segment.length) for segment in self.backend.segments([Span(LOG, first, end)])[0]]

    def test_a_segment_is_given_back(self) -> None:
        self.three_segments()
        check_equal(
            self.backend.segments([Span(LOG, 0, 6)]),
            [[Segment(0, 3, b"a|b|c"), Segment(3, 2, b"d|e"), Segment(5, 1, b"f")]],
            "segments: those that overlap the span, in order, with their data",
        )

    def test_a_span_gives_the_segments_that_overlap_it(self) -> None:
        self.three_segments()
        bounds = [(0, 3), (3, 2), (5, 1)]
        for first in range(8):
            for end in range(first + 1, 9):
                check_equal(
                    self.bounds(first, end),
                    [(at, length) for at, length in bounds if at < end and at + length > first],
                    f"the segments that overlap [{first}, {end}), whole",
                )

    def test_several_spans_at_once(self) -> None:
        self.three_segments()
        self.write(segments=(append(8, 0, b"x"),))
        answer = self.backend.segments([Span(8, 0, 1), Span(99, 0, 5), Span(LOG, 4, 6), Span(LOG, 4, 6)])
        both = [Segment(3, 2, b"d|e"), Segment(5, 1, b"f")]
        check_equal(
            answer, [[Segment(0, 1, b"x")], [], both, both], "one answer for each span, in order, [] for an unknown log"
        )
        check_equal(self.backend.segments([]), [], "segments of no spans")
        many = self.backend.segments([Span(LOG, at % 6, at % 6 + 1) for at in range(1500)])
        check_equal(
            [segment[0].first for segment in many],
            [(0, 0, 0, 3, 3, 5)[at % 6] for at in range(1500)],
            "1,500 spans at once",
        )

    def test_appending_elsewhere_than_at_the_tail_is_refused(self) -> None:
        self.assert_refused(
            Commit(TREE, segments=[append(LOG, 1, b"x")]), "segment", "the tail of an empty log is 0, not 1"
        )
        self.three_segments()
        for tail in (0, 3, 5, 7):
            self.assert_refused(
                Commit(TREE, segments=[append(LOG, tail, b"x")]), "segment", f"the tail is 6, not {tail}"
            )
        self.write(segments=(append(LOG, 6, b"g"),))
        check_equal(self.segments_of(LOG), [(0, 3), (3, 2), (5, 1), (6, 1)], "an append at the tail")

    def test_sealing_takes_the_place_of_the_segments_from_first_on(self) -> None:
        self.three_segments()
        self.write(segments=(SegmentWrite(LOG, 3, 3, b"sealed", tail=6),))
        check_equal(
            self.backend.segments([Span(LOG, 0, 6)]), [[Segment(0, 3, b"a|b|c"), Segment(3, 3, b"sealed")]],
            "a segment with first < tail takes the place of all segments from first on",
        )  # fmt: skip
        self.write(segments=(SegmentWrite(LOG, 0, 9, b"all", tail=6),))
        check_equal(
            self.backend.segments([Span(LOG, 0, 9)]), [[Segment(0, 9, b"all")]], "sealing may append at the same time"
        )
        self.write(segments=(append(LOG, 9, b"x"),))
        check_equal(self.segments_of(LOG), [(0, 9), (9, 1)], "after sealing, the tail is where the sealed segment ends")

    def test_sealing_with_the_same_bounds_replaces_the_data(self) -> None:
        self.write(segments=(append(LOG, 0, b"a"),))
        self.write(segments=(SegmentWrite(LOG, 0, 1, b"smaller", tail=1),))
        check_equal(
            self.backend.segments([Span(LOG, 0, 1)]),
            [[Segment(0, 1, b"smaller")]],
            "one segment may be sealed alone",
        )

    def test_sealing_is_refused_if_no_segment_begins_there_or_the_tail_is_another(self) -> None:
        self.three_segments()
        for first in (1, 2, 4):
            self.assert_refused(
                Commit(TREE, segments=[SegmentWrite(LOG, first, 6 - first, b"x", tail=6)]),
                "segment",
                f"no segment begins at {first}",
            )
        for tail in (5, 7):
            self.assert_refused(
                Commit(TREE, segments=[SegmentWrite(LOG, 3, 2, b"x", tail=tail)]), "segment", f"the tail is not {tail}"
            )
        self.assert_refused(
            Commit(TREE, segments=[SegmentWrite(99, 0, 1, b"x", tail=1)]), "segment", "the log is empty"
        )

    def test_one_of_several_logs_in_the_way_refuses_all(self) -> None:
        self.three_segments()
        self.assert_refused(
            Commit(TREE, segments=[append(8, 0, b"x"), append(LOG, 5, b"x"), append(9, 0, b"x")], rows=[head(b"x", 0)]),
            "segment",
            "one log's tail is another",
        )
        self.write(segments=(append(8, 0, b"x"), append(LOG, 6, b"x"), append(9, 0, b"x")))
        check_equal(sorted(self.dump().segments), [LOG, 8, 9], "a commit may write to several logs")

    def test_several_writes_to_one_log_follow_each_other(self) -> None:
        self.three_segments()
        self.write(
            segments=(SegmentWrite(LOG, 3, 3, b"sealed", tail=6), append(LOG, 6, b"g"), append(LOG, 7, b"h", b"i"))
        )
        self.write(segments=(append(8, 0, b"x"), append(LOG, 9, b"j"), append(8, 1, b"y")))
        check_equal(
            self.segments_of(LOG), [(0, 3), (3, 3), (6, 1), (7, 2), (9, 1)], "each begins where the one before ended"
        )
        check_equal(self.segments_of(8), [(0, 1), (1, 1)], "each begins where the one before ended, in a new log too")
        self.assert_refused(
            Commit(TREE, segments=[append(LOG, 9, b"x"), append(LOG, 10, b"y")]),
            "segment",
            "the first one's tail is compared with the store",
        )

    def test_deleting_a_segment(self) -> None:
        self.three_segments()
        self.commit(Commit(TREE, delete_segments=[SegmentDelete(LOG, 3, 2)]))
        check_equal(
            self.bounds(0, 6), [(0, 3), (5, 1)], "a deleted segment is not there; what is missing is simply left out"
        )
        self.write(segments=(append(LOG, 6, b"g"),))
        self.commit(Commit(TREE, delete_segments=[SegmentDelete(LOG, 5, 1), SegmentDelete(LOG, 6, 1)]))
        self.assert_refused(
            Commit(TREE, segments=[append(LOG, 7, b"x")]),
            "segment",
            "the tail is the end of the last segment left",
        )
        self.write(segments=(append(LOG, 3, b"x"),))
        check_equal(self.segments_of(LOG), [(0, 3), (3, 1)], "the tail is the end of the last segment")

    def test_deleting_all_segments_leaves_an_empty_log(self) -> None:
        self.three_segments()
        self.commit(
            Commit(TREE, delete_segments=[SegmentDelete(LOG, 0, 3), SegmentDelete(LOG, 3, 2), SegmentDelete(LOG, 5, 1)])
        )
        check_equal(self.backend.page_segments(None, 9), [], "no segment is left")
        self.write(segments=(append(LOG, 0, b"x"),))
        check_equal(self.segments_of(LOG), [(0, 1)], "the tail of a log without segments is 0")

    def test_deleting_with_pieces_keeps_parts_of_a_segment(self) -> None:
        self.write(segments=(append(LOG, 0, *(b"%d" % number for number in range(10))),))
        self.write(segments=(append(LOG, 10, b"x"),))
        self.commit(Commit(TREE, delete_segments=[SegmentDelete(LOG, 0, 10, ((2, 3, b"2|3|4"), (7, 1, b"7")))]))
        check_equal(
            self.backend.segments([Span(LOG, 0, 11)]),
            [[Segment(2, 3, b"2|3|4"), Segment(7, 1, b"7"), Segment(10, 1, b"x")]],
            "the pieces replace the deleted segment",
        )
        self.commit(Commit(TREE, delete_segments=[SegmentDelete(LOG, 2, 3, ((2, 3, b"same bounds"),))]))
        check_equal(self.bounds(0, 11), [(2, 3), (7, 1), (10, 1)], "a piece may have the bounds of the segment")

    def test_deleting_other_bounds_leaves_the_log_alone(self) -> None:
        self.three_segments()
        before = self.dump()
        for first, length in ((0, 2), (0, 4), (0, 6), (1, 2), (3, 1), (3, 3), (4, 1), (5, 2), (6, 1), (2, 3)):
            self.commit(Commit(TREE, delete_segments=[SegmentDelete(LOG, first, length, ((first, 1, b"piece"),))]))
        self.commit(Commit(TREE, delete_segments=[SegmentDelete(99, 0, 1, ((0, 1, b"piece"),))]))
        changed = before.differences(self.dump())
        check(not changed, f"without a segment of exactly these bounds nothing is deleted or put: {changed}")

    def test_empty_and_large_segments(self) -> None:
        large = bytes(range(256)) * 20_480
        self.write(segments=(SegmentWrite(LOG, 0, 1, b"", tail=0),))
        self.write(segments=(SegmentWrite(LOG, 1, 1000, large, tail=1),))
        found = self.backend.segments([Span(LOG, 0, 2)])[0]
        check_equal(
            [(segment.first, segment.length, len(segment.data)) for segment in found],
            [(0, 1, 0), (1, 1000, len(large))],
            "5 MB",
        )
        check(found[1].data == large, "a segment of 5 MB is given back byte for byte")

    def test_walking_over_all_segments(self) -> None:
        logs = (10, 2, 100, 2**32)
        expected = []
        for log in logs:
            for first in range(0, 12, 4):
                tree = TREE if log < 50 else OTHER_TREE
                self.write(segments=(append(log, first, b"a", b"b", b"c", b"%d" % log),), tree=tree)
                expected.append(SegmentInfo(log, first, 4, len(b"a|b|c|%d" % log)))
        walked: list[SegmentInfo] = []
        while page := self.backend.page_segments((walked[-1].log, walked[-1].first) if walked else None, 5):
            check(len(page) <= 5, f"page_segments(limit=5) gave {len(page)}")
            walked += page
        check_equal(
            walked,
            sorted(expected),
            "page_segments meets each segment once, ordered by (log, first), with its size",
        )
        check_equal(
            [(info.log, info.first) for info in self.backend.page_segments((10, 3), 2)],
            [(10, 4), (10, 8)],
            "page_segments continues with the first one greater than `after`, which need not exist",
        )
