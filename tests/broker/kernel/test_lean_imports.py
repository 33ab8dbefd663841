"""What a broker's process imports when it starts, each time in a new interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES
from tests.support.certificates import Authority

IMPORTED = """
from fencepost.broker.kernel.lean_imports import import_libraries
import_libraries()
import json, sys
import fencepost.broker.process.serve
"""
PRINT_MODULES = "print(json.dumps(sorted(sys.modules)))"
SERVED_UNTIL_READY = """
import os, signal

def ready(node, settings):
    print(json.dumps(sorted(sys.modules)))
    os.kill(os.getpid(), signal.SIGTERM)

fencepost.broker.process.serve._print_ready = ready
from fencepost.broker.process.serve_settings import load
fencepost.broker.process.serve.serve(load(("127.0.0.1:0",), sys.argv[1], None, (), None, None))
"""
# Each with what it costs a broker that has no use for it.
NOT_IMPORTED = {
    "_hashlib",  # OpenSSL
    "_ssl",
    "argparse",
    "asyncio.sslproto",
    "asyncpg",
    "fencepost.broker.cluster",
    "fencepost.broker.group.share_groups.groups",
    "fencepost.broker.group.streams.groups",
    "fencepost.broker.group.streams.service",
    "fencepost.broker.group.streams.topology",
    "fencepost.broker.share.shard",
    "fencepost.broker.share.service",
    "click",
    "cramjam",
    "difflib",
    "email",
    "fencepost.broker.check_back_host",
    "fencepost.check_back",
    "fencepost.testing",
    "fencepost.two_phase",
    "fencepost.broker.http",
    "fencepost.broker.metrics",
    "h11",
    "http",
    "importlib.metadata",
    "inspect",
    "ipaddress",
    "kafka",
    "locale",
    "lzma",
    "obstore",
    "pickle",
    "fencepost.protocol.messages.share_groups",
    "fencepost.protocol.messages.streams_groups",
    "fencepost.protocol.stored.share_groups",
    "fencepost.protocol.stored.streams_groups",
    "random",
    "re2",
    "rich",
    "ssl",
    "starlette",
    "structlog.stdlib",
    "structlog.threadlocal",
    "subprocess",
    "uuid",
    "uvicorn",
    "zipfile",
    # From Python 3.14 on, dataclasses cannot do without the compiler's trees; its tracebacks have colours.
    "ast" if sys.version_info < (3, 14) else "_colorize",
}
# Asked for all the time: the first request must not wait until what answers it is imported.
HOT_APIS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
}


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_broker_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    modules = set(json.loads(run(IMPORTED + SERVED_UNTIL_READY, str(tmp_path / "data"))))
    assert {"uvloop", "structlog", "crc32c._crc32c"} <= modules
    assert not modules & NOT_IMPORTED


def test_a_broker_with_tls_starts_with_openssl_and_without_the_library_of_certificates(tmp_path: Path) -> None:
    server = Authority(tmp_path / "authority").server()
    program = f"""
import json, os, signal, sys, fencepost.cli.main
import fencepost.broker.kernel.lean_imports as lean

def import_libraries(**needs):
    imported(**needs)
    import fencepost.broker.process.serve
    fencepost.broker.process.serve._print_ready = ready

def ready(node, settings):
    print(json.dumps(sorted(sys.modules)))
    os.kill(os.getpid(), signal.SIGTERM)

imported, fencepost.cli.main.import_libraries = lean.import_libraries, import_libraries
sys.argv = ["fencepost", "serve", "--data-dir", {str(tmp_path / "data")!r}]
sys.argv += ["--set", "listeners=SSL://127.0.0.1:0", "--set", "ssl.keystore.location={server.both}"]
fencepost.cli.main.main()
"""
    modules = set(json.loads(run(program)))
    assert {"_ssl", "asyncio.sslproto", "fencepost.broker.network.tls_server"} <= modules
    assert modules & NOT_IMPORTED == {"_ssl", "ssl", "asyncio.sslproto"}
    assert "cryptography" not in modules


def test_only_handlers_that_every_client_needs_are_imported_at_the_start() -> None:
    modules = set(json.loads(run(IMPORTED + PRINT_MODULES)))
    # Which operations on a group there are is asked for there, too.
    assert {SERVED[key].module for key in HOT_APIS} | {"group_admin"} == {
        row.module for row in SERVED.values() if f"fencepost.broker.handlers.{row.module}" in modules
    }
    assert {f"fencepost.protocol.messages.{FAMILIES[key][0]}" for key in HOT_APIS} <= modules
    assert (
        not {f"fencepost.protocol.messages.{family}" for family in ("acls", "reassignments", "share_fetch")} & modules
    )


@pytest.mark.parametrize(
    ("api_key", "needed"),
    [
        (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            {"fencepost.broker.share.service", "fencepost.broker.group.share_groups.groups"},
        ),
        (ApiKey.SHARE_FETCH, {"fencepost.broker.share.service", "fencepost.broker.group.share_groups.groups"}),
        (
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            {"fencepost.broker.share.service", "fencepost.broker.group.share_groups.groups"},
        ),
        (
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            {"fencepost.broker.group.streams.service", "fencepost.broker.group.streams.groups"},
        ),
    ],
)
def test_handlers_come_with_what_they_ask(api_key: ApiKey, needed: set[str]) -> None:
    """Where it cannot be read, the connection is closed before anything is done."""
    program = f"from fencepost.broker.requests.api import APIS; APIS[{int(api_key)}]\n"
    assert needed <= set(json.loads(run(IMPORTED + program + PRINT_MODULES)))


def test_the_function_of_crc32c_is_the_packages_own() -> None:
    printed = run(
        IMPORTED + "import fencepost.broker.log.files.segment_checksums as user; print(user.crc32c(b'123456789'))"
    )
    assert int(printed) == crc32c(b"123456789") == 0xE3069283


def test_the_event_loop_runs_and_knows_no_tls() -> None:
    program = """
import asyncio, uvloop

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    server.close()
    try:
        await asyncio.open_connection("127.0.0.1", 1, ssl=True)
    except Exception as error:
        print(type(error).__name__)

uvloop.run(main())
"""
    printed = run(IMPORTED + program)
    assert printed.strip()


def test_the_modules_that_were_kept_out_can_be_imported_afterwards() -> None:
    program = "import ssl, hashlib, importlib.metadata; print(ssl.create_default_context().protocol.name)"
    assert run(IMPORTED + program).strip() == "PROTOCOL_TLS_CLIENT"


def test_libraries_that_are_imported_already_stay_as_they_are() -> None:
    program = """
import ssl, asyncio, uvloop, structlog, crc32c
before = [ssl, asyncio, uvloop, structlog, crc32c, asyncio.sslproto.ssl]
from fencepost.broker.kernel.lean_imports import import_libraries
import_libraries()
import ssl, asyncio, uvloop, structlog, crc32c
assert before == [ssl, asyncio, uvloop, structlog, crc32c, ssl]
"""
    run(program)


def test_a_loop_that_needs_more_of_tls_gets_the_real_module() -> None:
    program = """
import sys
from fencepost.broker.kernel import lean_imports
del lean_imports._NamesOfSsl.MemoryBIO
lean_imports.import_libraries()
assert "ssl" not in sys.modules and "uvloop.loop" not in sys.modules
import uvloop
assert "ssl" in sys.modules
async def main(): return 1
assert uvloop.run(main()) == 1
"""
    run(program)


def test_a_log_library_that_needs_more_gets_the_real_module() -> None:
    program = """
import sys
from fencepost.broker.kernel import lean_imports
del lean_imports._NamesOfPickle.PicklingError
lean_imports.import_libraries()
assert "pickle" not in sys.modules and "structlog" not in sys.modules
import structlog
assert "pickle" in sys.modules
structlog.get_logger().info("it works")
"""
    run(program)


def test_the_encoding_of_the_locale_is_found_at_its_first_use() -> None:
    program = "import subprocess, codecs; encoding = subprocess._text_encoding(); import locale\n"
    program += "assert codecs.lookup(encoding) == codecs.lookup(locale.getencoding()) or sys.flags.utf8_mode"
    run(IMPORTED + program)


def test_what_loops_ask_of_functions_is_what_inspect_says() -> None:
    program = """
import functools, asyncio, dataclasses

async def asynchronous(): ...
def plain(): ...
def generator(): yield
@functools.wraps(asynchronous)
def wrapped(): ...
class Callable:
    async def __call__(self): ...
    async def method(self): ...

instance = Callable()
values = [asynchronous, plain, generator, generator(), wrapped, instance, instance.method, Callable,
          functools.partial(asynchronous), functools.partial(instance.method), functools.partial(plain), len, None]
@functools.wraps(wrapped)
def wrapped_again(): ...

values.append(wrapped_again)
light = dataclasses.inspect
names = ("isfunction", "isgenerator", "iscoroutinefunction", "unwrap")
found = [getattr(light, name)(value) for name in names for value in values]
import inspect
assert inspect is not light
assert found == [getattr(inspect, name)(value) for name in names for value in values]
light.signature
assert light.unwrap is inspect.unwrap
"""
    run(IMPORTED + program)


def test_what_is_asked_during_an_import_is_what_inspect_says() -> None:
    program = """
import functools
from fencepost.broker.kernel import lean_imports

def plain(): ...
@functools.wraps(plain)
def wrapped(): ...
@functools.wraps(wrapped)
def wrapped_again(): ...

with lean_imports._in_place_of(lean_imports._STAND_INS):
    import inspect
    assert inspect is lean_imports._INSPECT
    assert inspect.unwrap(wrapped_again) is plain
import sys
assert sys.modules["inspect"] is not inspect
"""
    run(program)


def test_a_dataclass_without_docstring_shows_its_fields_unless_it_was_imported_with_the_libraries() -> None:
    program = """
import dataclasses
from fencepost.broker.kernel import lean_imports

with lean_imports._without_signatures():
    @dataclasses.dataclass
    class OfLibrary:
        number: int
assert OfLibrary.__doc__ == "OfLibrary", OfLibrary.__doc__

@dataclasses.dataclass
class OfUser:
    number: int
assert OfUser.__doc__ == "OfUser(number: int)", OfUser.__doc__
assert OfUser(1) == OfUser(number=1) and OfLibrary(1) == OfLibrary(number=1)
"""
    run(IMPORTED + program)


def test_processes_can_be_started_and_spoken_to() -> None:
    program = """
import asyncio, uvloop

async def main():
    import sys
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(6 * 7)", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0].decode().strip())

uvloop.run(main())
import subprocess
assert (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL) == (-1, -2, -3)
"""
    assert run(IMPORTED + program).strip() == "42"


def test_a_stand_in_gives_way_to_its_module_during_other_imports() -> None:
    program = """
import sys
from fencepost.broker.kernel import lean_imports
from fencepost.protocol.lazy_import import lazy_module
with lean_imports._in_place_of({"shlex": lazy_module("shlex")}):
    import shlex
    assert shlex.quote("a b") == "'a b'"
    assert sys.modules["shlex"] is not shlex
assert "shlex" in sys.modules
"""
    run(program)


def test_a_crc32c_of_another_make_is_imported_as_a_whole() -> None:
    program = """
import sys
from fencepost.broker.kernel import lean_imports
sys.modules["crc32c._crc32c"] = None
lean_imports.import_libraries()
assert "crc32c" not in sys.modules
del sys.modules["crc32c._crc32c"]
from crc32c import crc32c

from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES
assert crc32c(b"123456789") == 0xE3069283
"""
    run(program)
