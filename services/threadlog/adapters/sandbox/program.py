"""Python programs as one file that runs inside the sandbox, where this package is not.

The helper is compiled once, by the very Python that runs it: that saves 4 ms of each call.
"""

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_PACKAGE = __package__
# Each module runs under its own full name, so that the next one finds it when it imports it.
_LOADER = """\
import marshal, sys
for name, code in {codes}:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
sys.exit(module.main())
"""
_COMPILER = """\
import marshal, sys
from importlib.util import MAGIC_NUMBER
sys.stdin.read()
codes = [(name, compile(text, name, "exec")) for name, text in {modules!r}]
loader = {loader!r}.format(codes="marshal.loads(%r)" % marshal.dumps(codes))
data = MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(loader, "program", "exec"))
sys.stdout.buffer.write(data)
"""
_HELPER = ("helper_frames", "helper_files", "helper_lines", "helper")


@cache
def helper_compiler() -> bytes:
    """A program that prints the compiled program that serves `read`, `write` and `edit`."""
    return _COMPILER.format(modules=_modules(*_HELPER), loader=_LOADER).encode()


@cache
def probes() -> bytes:
    """The program that tries to leave the sandbox and says what was not denied."""
    codes = f"[(name, compile(text, name, 'exec')) for name, text in {_modules('helper_probes')!r}]"
    return _LOADER.format(codes=codes).encode()


def _modules(*names: str) -> list[tuple[str, str]]:
    return [(f"{_PACKAGE}.{name}", (_FOLDER / f"{name}.py").read_text()) for name in names]
