"""A configuration from a stranger: what it may decide, what it may not. No server that it names is
ever connected to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from configurations import EVENT, assert_refused, configure, names_in, serve_hook, sessions_of

from holdfast import SyncClient

pytestmark = pytest.mark.slow  # in sum: many commands on many stores

SECRET = "hunter2-of-the-environment"


class Listener:
    """A server of the stranger's on the loopback: counts who connects, and keeps what is sent."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        self.received = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                connection.settimeout(0.2)
                self.received += connection.recv(65536)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def listener():
    server = Listener()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch, tmp_path_factory):
    """What libpq takes from the environment."""
    home = tmp_path_factory.mktemp("home")
    (home / ".pgpass").write_text(f"*:*:*:*:{SECRET}\n")
    (home / ".pgpass").chmod(0o600)
    (home / "service.conf").write_text(f"[prod]\npassword={SECRET}\nuser=ann\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("PGPASSFILE", str(home / ".pgpass"))
    monkeypatch.setenv("PGSERVICEFILE", str(home / "service.conf"))


URLS = ["redis://127.0.0.1:{port}/0", "postgresql://ann@127.0.0.1:{port}/d",
        "postgresql:///d?host=127.0.0.1&port={port}&service=prod"]  # fmt: skip


class TestServers:
    """No command connects to a server that an untrusted file names."""

    @pytest.mark.parametrize("url", URLS[:2])
    @pytest.mark.parametrize("command", ["sessions", "snap", "hook"])
    def test_processes_connect_to_nothing(self, clone, listener, url, command):
        configure(clone, f'store = "{url.format(port=listener.port)}"\n')
        args = {"hook": ["hook", "claude-code", "--serve"]}.get(command, [command])
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *args], input=json.dumps({**EVENT, "cwd": str(clone)}),
            capture_output=True,
            text=True, cwd=clone, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0 if command == "hook" else 1, "")
        assert done.stderr.count("\n") == 1
        assert f"store = {url.format(port=listener.port)} (it is a URL" in done.stderr
        assert f"holdfast trust {clone}" in done.stderr
        assert (listener.connections, listener.received) == (0, b"")
        assert not (clone / ".holdfast").exists()

    @pytest.mark.parametrize("url", URLS)
    @pytest.mark.parametrize(
        "command",
        ["sessions", "timeline s", "show s", "save s state.json", "status", "verify", "snap", "watch . --count 1",
         "rewind", "runs", "gc", "migrate --check", "events --no-follow", "undo", "langgraph threads",
         "resume s json:dumps",
         "replay s json:dumps", "replay s asyncio:sleep", "bisect s -- true", "import bundle.hf", "export s -o out.hf"],
    )  # fmt: skip
    def test_commands_refuse(self, run, clone, listener, url, command):
        (clone / "bundle.hf").write_bytes(b"")
        configure(clone, f'store = "{url.format(port=listener.port)}"\n')
        assert_refused(run(*command.split()), "store = ", "it is a URL")
        assert listener.connections == 0

    @pytest.mark.parametrize("name", ["holdfast.toml", "pyproject.toml"])
    def test_the_hook_says_one_line_and_goes_on(self, clone, listener, name):
        table = "" if name == "holdfast.toml" else "[tool.holdfast]\n"
        configure(clone, f'{table}store = "redis://127.0.0.1:{listener.port}"\n', name)
        result = serve_hook(clone)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith("holdfast: no snapshot was taken: the configuration of ")
        assert result.stderr.count("\n") == 1
        assert json.loads(serve_hook(clone, "--json").stdout) == {"checkpoint_id": None}
        assert listener.connections == 0

    def test_completion_asks_no_server(self, clone, listener):
        configure(clone, f'store = "redis://127.0.0.1:{listener.port}"\n')
        words = {"COMP_WORDS": "holdfast timeline ", "COMP_CWORD": "2", "_HOLDFAST_COMPLETE": "bash_complete"}
        done = subprocess.run(
            [sys.executable, "-m", "holdfast"], env={**os.environ, **words}, cwd=clone, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert listener.connections == 0

    def test_doctor_shows_it_and_connects_to_nothing(self, run, clone, listener):
        configure(clone, f'store = "postgresql://127.0.0.1:{listener.port}/d"\n')
        result = run("doctor", "--json")
        assert result.exit_code == 1
        checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
        assert checks["trust"]["status"] == "warn"
        assert (checks["store"]["status"], checks["store"]["found"]) == ("fail", "not opened: it needs trust")
        assert "store = postgresql://" in checks["trust"]["advice"]
        assert f"holdfast trust {clone}" in checks["trust"]["advice"]
        assert listener.connections == 0

    def test_with_trust_the_server_is_asked(self, run, clone, listener):
        configure(clone, f'store = "redis://127.0.0.1:{listener.port}/0"\n')
        assert run("trust", "--yes").exit_code == 0
        result = run("sessions")
        assert result.exit_code == 1
        assert "needs trust" not in result.stderr
        assert listener.connections > 0

    def test_the_users_own_word_needs_no_trust(self, run, clone, listener, monkeypatch):
        configure(clone, f'store = "redis://127.0.0.1:{listener.port}/0"\n')
        assert run("save", "s", "state.json", "--store", "own.db").exit_code == 0
        assert sessions_of(run("sessions", "--json", "--store", "own.db")) == ["s"]
        monkeypatch.setenv("HOLDFAST_URL", str(clone / "own.db"))
        assert sessions_of(run("sessions", "--json")) == ["s"]
        assert listener.connections == 0


@pytest.mark.servers
@pytest.mark.slow
def test_a_trusted_store_on_a_server_works(run, clone, redis_url):
    configure(clone, f'store = "{redis_url}?prefix=trusted-store"\n')
    assert_refused(run("save", "s", "state.json"))
    assert run("trust", "--yes").exit_code == 0
    assert run("save", "s", "state.json").exit_code == 0
    assert sessions_of(run("sessions", "--json")) == ["s"]
    assert serve_hook(clone).exit_code == 0
    assert len(sessions_of(run("sessions", "--json"))) == 2


class TestPaths:
    """A store within the directory needs no trust, by its real path; one outside does."""

    @pytest.mark.parametrize(
        "store", ["data/a.db", "./a.db", "data/../a.db", "sqlite:///a.db", "sqlite:///{clone}/a.db",
                  "file://{clone}/tree", "file://{clone}/a%20tree", "{clone}/a.db", "inner/a.db", "$PGPASSWORD.db"],
    )  # fmt: skip
    def test_a_store_inside_is_used(self, run, clone, store):
        (clone / "data").mkdir()
        (clone / "inner").symlink_to("data")
        configure(clone, f'store = "{store.format(clone=clone)}"\n')
        assert run("save", "s", "state.json").exit_code == 0
        assert sessions_of(run("sessions", "--json")) == ["s"]
        assert names_in(clone.parent) == ["clone"]

    def test_no_variable_is_replaced(self, run, clone):
        configure(clone, 'store = "$PGPASSWORD.db"\n')
        run("save", "s", "state.json")
        assert (clone / "$PGPASSWORD.db").is_file()

    @pytest.mark.parametrize(
        "store", ["../a.db", "{clone}/../a.db", "{outside}/a.db", "sqlite:///../a.db", "sqlite:///{outside}/a.db",
                  "file://{outside}/tree", "file://{clone}/../tree", "file://{clone}/%2e%2e/tree", "~/a.db", "link.db",
                  "linked/a.db", "linked", "dangling.db", "clone/../../clone2/a.db", "there-and-back"],
    )  # fmt: skip
    def test_a_store_outside_is_refused_and_nothing_is_made(self, run, clone, tmp_path_factory, store):
        outside = tmp_path_factory.mktemp("outside")
        (outside / "back.db").symlink_to(clone / "real.db")  # its other files would be outside
        with SyncClient.sqlite(outside / "there.db") as client:
            client.save("a", session_id="s")
        (clone / "link.db").symlink_to(outside / "there.db")
        (clone / "linked").symlink_to(outside)
        (clone / "dangling.db").symlink_to(outside / "new.db")
        named = "linked/back.db" if store == "there-and-back" else store.format(clone=clone, outside=outside)
        configure(clone, f'store = "{named}"\n')
        before = names_in(outside)
        for command in (["save", "s", "state.json"], ["sessions"], ["snap"]):
            assert_refused(run(*command), "store = ", "it is outside the directory")
        assert serve_hook(clone).exit_code == 0
        assert names_in(outside) == before
        assert names_in(clone.parent) == ["clone"]
        assert not (clone / ".holdfast").exists()

    def test_with_trust_a_store_outside_is_used(self, run, clone):
        configure(clone, 'store = "../beside.db"\n')
        assert run("trust", "--yes").exit_code == 0
        assert run("save", "s", "state.json").exit_code == 0
        assert sessions_of(run("sessions", "--json")) == ["s"]
        assert (clone.parent / "beside.db").is_file()

    @pytest.mark.parametrize("mark", ["\\t", "\\n", "?", "#", "%00"])
    def test_a_url_that_can_be_read_in_two_ways_is_refused(self, run, clone, mark):
        """A reader of URLs that drops the mark would go up."""
        configure(clone, f'store = "file://{clone}/.{mark}./.{mark}./tree"\n')
        result = run("save", "s", "state.json")
        assert result.exit_code == 2
        assert "is no URL of a directory" in result.stderr
        assert names_in(clone.parent) == ["clone"]

    @pytest.mark.parametrize("what", ["directory", "file", "files", "dangling"])
    @pytest.mark.parametrize("command", ["sessions", "save s state.json", "snap", "init", "doctor", "hook"])
    def test_a_holdfast_directory_that_leads_out_is_refused(self, run, clone, tmp_path_factory, what, command):
        outside = tmp_path_factory.mktemp("outside")
        with SyncClient.sqlite(outside / "store.db") as client:
            client.save("a", session_id="s")
        with SyncClient.files(outside / "store") as client:
            client.save("a", session_id="s")
        own = clone / ".holdfast"
        if what == "directory":
            own.symlink_to(outside)
        elif what == "dangling":
            own.symlink_to(outside / "new")
        else:
            own.mkdir()
            name = "store.db" if what == "file" else "store"
            (own / name).symlink_to(outside / name)
        before = sorted(path.name for path in outside.rglob("*"))
        if command == "hook":
            result = serve_hook(clone)
            assert result.exit_code == 0
            assert ".holdfast = " in result.stderr
        elif command == "doctor":
            result = run("doctor")
            assert "not trusted" in result.stdout
            if what != "dangling":  # there is no store, then
                assert result.exit_code == 1
        elif what == "dangling" and command == "sessions":
            assert run("sessions").exit_code == 3
        else:
            assert_refused(run(*command.split()), ".holdfast = ", "it is outside the directory")
        assert sorted(path.name for path in outside.rglob("*")) == before

    def test_a_holdfast_directory_elsewhere_is_used_with_trust(self, run, clone, tmp_path_factory):
        outside, other = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("other")
        (clone / ".holdfast").symlink_to(outside)
        assert run("trust", "--yes").exit_code == 0
        assert run("save", "s", "state.json").exit_code == 0
        assert (outside / "store.db").is_file()
        (clone / ".holdfast").unlink()
        (clone / ".holdfast").symlink_to(other)
        assert_refused(run("save", "s", "state.json"), "has changed since")

    def test_the_hook_writes_through_no_link(self, run, clone, tmp_path_factory):
        target = tmp_path_factory.mktemp("outside") / "autostart"
        (clone / ".holdfast").mkdir()
        (clone / ".holdfast" / ".gitignore").symlink_to(target)
        assert serve_hook(clone).exit_code == 0
        assert not target.exists()
        other = tmp_path_factory.mktemp("other")
        shutil.rmtree(clone / ".holdfast")
        (clone / ".holdfast").symlink_to(other)
        assert serve_hook(clone, "--store", str(clone.parent / "own.db")).exit_code == 0
        assert names_in(other) == []


class TestWorkspaceRules:
    LOOSENED = ("include_git = true", "gitignore = false", "default_excludes = false", 'secrets = "keep"',
                "max_files = 500_001", "max_bytes = 21474836481", "max_file_bytes = 4294967297", "max_seconds = 601",
                "min_free_bytes = 0")  # fmt: skip

    @pytest.mark.parametrize("rule", LOOSENED)
    def test_rules_that_take_in_more_are_refused_whoever_names_the_store(self, run, clone, rule):
        configure(clone, f"[workspace]\n{rule}\n")
        asked = f"workspace.{rule.split()[0]} = "
        for given in ([], ["--store", str(clone.parent / "own.db")]):
            assert_refused(run("snap", *given), asked)
            assert_refused(run("watch", ".", "--count", "1", *given), asked)
            result = serve_hook(clone, *given)
            assert (result.exit_code, result.stdout) == (0, "")
            assert asked in result.stderr
        assert names_in(clone.parent) == ["clone"]
        assert not (clone / ".holdfast").exists()
        assert run("trust", "--yes").exit_code == 0
        assert run("snap").exit_code == 0
        assert run("snap").exit_code == 0  # the store that the first one has made asks for nothing

    @pytest.mark.parametrize(
        "rule", ["include_git = false", "gitignore = true", "default_excludes = true", 'secrets = "skip"',
                 "max_files = 500_000", "max_bytes = 1000_000", "max_seconds = 600", "min_free_bytes = 536870912"],
    )  # fmt: skip
    def test_rules_that_leave_out_more_are_followed(self, run, clone, rule):
        configure(clone, f"[workspace]\n{rule}\n")
        assert run("snap").exit_code == 0
        assert serve_hook(clone).exit_code == 0

    def test_what_does_not_take_snapshots_is_not_refused(self, run, clone):
        configure(clone, "[workspace]\ninclude_git = true\n")
        assert run("save", "s", "state.json").exit_code == 0
        assert sessions_of(run("sessions", "--json")) == ["s"]

    def test_an_ignore_file_takes_no_git_in(self, run, clone):
        (clone / ".git").mkdir()
        (clone / ".git" / "config").write_text(f"token = {SECRET}\n")
        (clone / ".holdfastignore").write_text("!.git\n!.git/\n!.git/**\n")
        assert ".git" in [one["path"] for one in json.loads(run("snap", "--json").stdout)["excluded"]]


class TestFiles:
    """The file itself may be anything."""

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (os.mkfifo, "is no regular file"),
            (lambda file: file.symlink_to("/dev/zero"), "is no regular file"),
            (lambda file: file.symlink_to(file.name), "can't be read"),
            (lambda file: file.write_text("#" * 70_000), "has more than 65,536 bytes"),
            (lambda file: file.write_text("store = ["), "can't be read"),
            (lambda file: file.write_text("store = " + "[" * 30_000), "can't be read"),
            (lambda file: file.write_text("store = " + "9" * 30_000), "can't be read"),
            (lambda file: file.write_text("a" + ".a" * 30_000 + " = 1"), "a key of more than 100 parts"),
            (lambda file: file.write_text("['a'" + ' .\t"a"' * 10_000 + "]"), "a key of more than 100 parts"),
            (lambda file: file.write_text('store = "~no-such-user-here/x.db"'), "no such user"),
            (lambda file: file.write_text('store = "a\\u0000b"'), "must be a path or a URL"),
            (lambda file: file.write_text('program = "evil:main"'), "a setting 'program' that is not known"),
        ],
    )
    def test_what_can_not_be_read_is_said(self, clone, make, words):
        make(clone / "holdfast.toml")
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "sessions"],
            cwd=clone,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_pyproject_that_is_nothing_of_ours_is_passed_over(self, run, clone):
        run("save", "s", "state.json")
        os.mkfifo(clone / "pyproject.toml")
        assert sessions_of(run("sessions", "--json")) == ["s"]
        (clone / "pyproject.toml").unlink()
        (clone / "pyproject.toml").write_text("#" * 2_000_000)
        assert sessions_of(run("sessions", "--json")) == ["s"]

    def test_a_link_to_a_file_elsewhere_needs_trust(self, run, clone, tmp_path_factory):
        other = tmp_path_factory.mktemp("other") / "mine.toml"
        other.write_text('store = "a.db"\n')
        (clone / "holdfast.toml").symlink_to(other)
        assert_refused(run("save", "s", "state.json"), f"holdfast.toml = {other}")
        assert run("trust", "--yes").exit_code == 0
        assert run("save", "s", "state.json").exit_code == 0
        other.write_text('store = "b.db"\n')
        assert_refused(run("sessions"), "has changed since")


class TestOtherUsers:
    """As git's safe.directory: in /tmp, anybody can leave a configuration for what is below."""

    @pytest.fixture
    def give_away(self, monkeypatch):
        """Makes a path another user's. Who is not root can't: then the process is another user's instead."""

        def give(path: Path) -> None:
            if os.geteuid() == 0:
                os.chown(path, 54321, -1, follow_symlinks=False)
            else:
                monkeypatch.setattr(os, "geteuid", lambda: 54321)

        return give

    @pytest.fixture
    def below(self, clone, monkeypatch):
        (clone / "below").mkdir()
        monkeypatch.chdir(clone / "below")
        return clone / "below"

    def test_a_configuration_of_another_user_is_refused(self, run, clone, below, give_away):
        configure(clone, 'store = "a.db"\n')
        assert run("save", "s", "../state.json").exit_code == 0
        give_away(clone / "holdfast.toml")
        for command in (["sessions"], ["save", "s", "../state.json"], ["snap"]):
            assert_refused(run(*command), "owner of holdfast.toml = uid ")
        assert_refused(run("snap", "--store", str(clone.parent / "own.db")), "owner of holdfast.toml = uid ")
        assert run("trust", "--yes").exit_code == 0
        assert sessions_of(run("sessions", "--json")) == ["s"]

    def test_a_store_of_another_user_that_lies_above_is_refused(self, run, clone, below, give_away):
        with SyncClient.sqlite(clone / ".holdfast" / "store.db") as client:
            client.save("a", session_id="s")
        give_away(clone / ".holdfast")
        for command in (["sessions"], ["save", "s", "../state.json"], ["snap"]):
            assert_refused(run(*command), "owner of .holdfast = uid ")
        assert sessions_of(run("sessions", "--json", "--store", str(clone / ".holdfast" / "store.db"))) == ["s"]

    def test_one_nearer_of_ones_own_goes_before_it(self, run, clone, below, give_away):
        if os.geteuid() != 0:
            pytest.skip("needs root")
        configure(clone, 'store = "a.db"\n')
        give_away(clone / "holdfast.toml")
        assert run("init").exit_code == 0
        assert sessions_of(run("sessions", "--json")) == []

    def test_who_became_root_keeps_what_is_his(self, run, clone, monkeypatch):
        if os.geteuid() != 0:
            pytest.skip("needs root")
        configure(clone, 'store = "a.db"\n')
        os.chown(clone / "holdfast.toml", 54321, -1)
        assert_refused(run("save", "s", "state.json"))
        monkeypatch.setenv("SUDO_UID", "54321")
        assert run("save", "s", "state.json").exit_code == 0
