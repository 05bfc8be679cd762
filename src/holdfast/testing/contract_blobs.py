"""The contract: blobs."""

from __future__ import annotations

import time

from holdfast.backends.port import BlobInfo, Commit
from holdfast.testing.harness import OTHER_TREE, TREE, Harness, check, check_equal, hash_bytes


class BlobContract(Harness):
    def info(self, data: bytes) -> BlobInfo | None:
        return next((info for info in self.backend.page_blobs(None, 1000) if info.hash == hash_bytes(data)), None)

    def written_at(self, data: bytes) -> int:
        info = self.info(data)
        assert info is not None, f"the blob {data!r:.40} is not there"
        return info.written_at_us

    def test_a_blob_is_found_by_its_hash(self) -> None:
        self.write(blobs=(b"one", b"two", b""))
        asked = [hash_bytes(b"two"), hash_bytes(b"missing"), hash_bytes(b""), hash_bytes(b"one"), hash_bytes(b"two")]
        check_equal(
            self.backend.blobs(asked), [b"two", None, b"", b"one", b"two"],
            "blobs: one answer for each hash, in order, None where there is none; an empty blob is a blob",
        )  # fmt: skip
        check_equal(self.backend.blobs([]), [], "blobs of no hashes")

    def test_many_blobs_at_once(self) -> None:
        contents = tuple(b"blob %d" % number for number in range(40))
        self.write(blobs=contents)
        asked = [contents[number % 40] for number in range(1500)]
        check_equal(
            self.backend.blobs([hash_bytes(data) for data in asked]), asked, "blobs answers for 1,500 hashes at once"
        )
        some = [data if number % 3 else None for number, data in enumerate(asked)]
        hashes = [hash_bytes(b"missing %d" % number if data is None else data) for number, data in enumerate(some)]
        check_equal(
            self.backend.blobs(hashes), some, "of many hashes, those that are not there are None, in their places"
        )

    def test_a_large_blob(self) -> None:
        large = bytes(range(256)) * 20_480
        self.write(blobs=(large,))
        check(self.backend.blobs([hash_bytes(large)]) == [large], "a blob of 5 MB is given back byte for byte")
        info = self.info(large)
        check_equal(info and info.size, len(large), "page_blobs gives the size of the content")

    def test_writing_again_moves_the_time_and_adds_nothing(self) -> None:
        self.write(blobs=(b"one",))
        first = self.written_at(b"one")
        time.sleep(0.005)
        self.write(blobs=(b"one",), tree=OTHER_TREE)
        check(self.written_at(b"one") > first, "a blob has the time of the *last* commit that wrote it")
        check_equal(self.dump().blobs, {hash_bytes(b"one"): b"one"}, "the same blob is kept once")

    def test_a_refused_commit_does_not_touch(self) -> None:
        self.write(blobs=(b"one",))
        time.sleep(0.005)
        blobs = {hash_bytes(data): data for data in (b"one", b"two")}
        self.assert_refused(
            Commit(TREE, blobs=blobs, require=[(bytes(16), b"")]), "require", "blobs of a refused commit"
        )

    def test_deleting_depends_on_when_it_was_written(self) -> None:
        self.write(blobs=(b"one", b"two"))
        written = self.written_at(b"one")
        self.commit(Commit(TREE, delete_blobs={hash_bytes(b"one"): written, hash_bytes(b"missing"): written + 10**6}))
        check_equal(
            self.backend.blobs([hash_bytes(b"one")]),
            [b"one"],
            "a blob not written *before* the given time is left alone",
        )
        self.commit(Commit(TREE, delete_blobs={hash_bytes(b"one"): written + 1}))
        check_equal(self.dump().blobs, {hash_bytes(b"two"): b"two"}, "a blob written before the given time is deleted")

    def test_a_blob_written_again_survives_an_older_decision_to_delete_it(self) -> None:
        self.write(blobs=(b"one",))
        decided = self.written_at(b"one") + 1
        time.sleep(0.005)
        self.write(blobs=(b"one",))
        self.commit(Commit(TREE, delete_blobs={hash_bytes(b"one"): decided}))
        check_equal(
            self.backend.blobs([hash_bytes(b"one")]),
            [b"one"],
            "a touched blob is not deleted by what was decided before",
        )

    def test_a_deleted_blob_can_be_written_again(self) -> None:
        self.write(blobs=(b"one",))
        self.commit(Commit(TREE, delete_blobs={hash_bytes(b"one"): 2**62}))
        check_equal(self.backend.blobs([hash_bytes(b"one")]), [None], "a deleted blob is None")
        self.write(blobs=(b"one",))
        check_equal(self.backend.blobs([hash_bytes(b"one")]), [b"one"], "a blob that is written again is there")

    def test_walking_over_all_blobs(self) -> None:
        contents = [b"x" * number for number in range(20)]
        for data in contents:
            self.write(blobs=(data,))
        walked: list[BlobInfo] = []
        while page := self.backend.page_blobs(walked[-1].hash if walked else None, 7):
            check(len(page) <= 7, f"page_blobs(limit=7) gave {len(page)}")
            walked += page
        check_equal(
            [(info.hash, info.size) for info in walked],
            sorted((hash_bytes(data), len(data)) for data in contents),
            "page_blobs meets every blob once, in the order of their hashes, with its size",
        )
