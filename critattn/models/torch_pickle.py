"""The pickle of a torch state_dict, read by a machine that can build tables and tensors and call nothing."""

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from critattn.errors import SpecError
from critattn.models.values import MAX_DIMENSIONS, shown

STORAGES = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}
# A tensor takes some 60 steps: this is 30,000 tensors.
MAX_STEPS = 2_000_000


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the archive.

    Attributes:
        dtype: their type, as in F32.
        itemsize: bytes of one.
        key: the member's name under data/.
        count: how many.
    """

    dtype: str
    itemsize: int
    key: str
    count: int


@dataclass(frozen=True)
class Strided:
    """A tensor: a view of a storage, with its bounds checked.

    Attributes:
        storage: what it is a view of.
        offset: of its first number.
        shape: its shape.
        strides: steps between neighbours along each axis, in numbers.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """How many numbers of the storage lie between its first and its last one, both included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class _Name:
    text: str


def load(data: bytes, where: str) -> Any:
    """What a pickle describes, made of dict, list, tuple, str, bytes, numbers, None, Storage and Strided only.

    No global is looked up and no object is called: the few names that a state_dict needs are understood as
    words, every other name and every other opcode is refused. The list is shorter than that of
    [pytorch/pytorch, torch/_weights_only_unpickler.py].

    Raises:
        SpecError: for a name or an opcode outside the list, more than two million steps, and tensors that reach
            outside their storage; ValueError and LookupError of a broken pickle are left to the caller.
    """
    machine = _Machine(where)
    for step, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if step >= MAX_STEPS:
            raise SpecError(f"{where}: its pickle has over {MAX_STEPS:,} steps; allowed: the state_dict of one model")
        action = ACTIONS.get(opcode.name)
        if action is None:
            raise SpecError(f"{where}: its pickle has the opcode {opcode.name}; allowed: what a state_dict needs")
        action(machine, argument)
    if len(machine.stack) != 1 or machine.marks:
        raise SpecError(f"{where}: its pickle leaves {len(machine.stack)} objects; allowed: one state_dict")
    return machine.stack[0]


class _Machine:
    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def refuse(self, what: str) -> SpecError:
        return SpecError(f"{self.where}: its pickle {what}; allowed: the state_dict of a model, tensors by name")

    def push(self, value: Any) -> None:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self.refuse("has a whole number of over 64 bits")
        self.stack.append(value)

    def popped(self, count: int) -> list[Any]:
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) - count < floor:
            raise self.refuse("takes from an empty stack")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise self.refuse("takes from an empty stack")
        mark = self.marks.pop()
        taken = self.stack[mark:]
        del self.stack[mark:]
        return taken

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise self.refuse(f"fills in what is no {kind.__name__}")
        return self.stack[-1]

    def remember(self, index: int) -> None:
        if not self.stack:
            raise self.refuse("takes from an empty stack")
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise self.refuse("recalls what it never stored")
        self.push(self.memo[index])

    def name(self, text: str) -> None:
        if text not in CALLS and text not in STORAGE_NAMES:
            raise SpecError(
                f"{self.where}: its pickle asks for {shown(text)}, which was not looked up or run; "
                "allowed: the state_dict of a model (save model.state_dict(), not the model)"
            )
        self.push(_Name(text))

    def stack_name(self) -> None:
        module, name = self.popped(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise self.refuse("asks for a name that is no text")
        self.name(f"{module}.{name}")

    def call(self) -> None:
        function, arguments = self.popped(2)
        made = CALLS.get(function.text) if type(function) is _Name else None
        if made is None or type(arguments) is not tuple:
            raise self.refuse("calls what is no function")
        self.push(made(self, arguments))

    def build(self) -> None:
        # The state of an OrderedDict here is torch's _metadata, of versions of modules.
        self.popped(1)
        self.top(dict)

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def fill(self, values: list[Any]) -> None:
        table = self.top(dict)
        if len(values) % 2:
            raise self.refuse("has a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            self.enter(table, key, value)

    def enter(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if type(key) not in (str, int):
            raise self.refuse("has a key that is neither text nor a whole number")
        if key in table:
            raise self.refuse(f"has the key {shown(str(key))} twice")
        table[key] = value

    def persistent(self) -> None:
        (told,) = self.popped(1)
        match told:
            case ("storage", _Name(text), str() as key, str(), int() as count) if text in STORAGE_NAMES:
                if type(count) is not int or count < 0:
                    raise self.refuse("has a storage of no whole size")
                self.push(Storage(*STORAGES[text.removeprefix("torch.")], key, count))
            case _:
                raise self.refuse("names a storage in no known way")


def _table(machine: _Machine, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    pairs = arguments[0] if len(arguments) == 1 else []
    if len(arguments) > 1 or type(pairs) is not list:
        raise machine.refuse("makes an OrderedDict of what are no pairs")
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise machine.refuse("makes an OrderedDict of what are no pairs")
        machine.enter(table, *pair)
    return table


def _tensor(machine: _Machine, arguments: tuple[Any, ...]) -> Strided:
    match arguments:
        case (Storage() as storage, offset, tuple() as shape, tuple() as strides, _, _, *rest) if len(rest) <= 1:
            numbers = (offset, *shape, *strides)
        case _:
            raise machine.refuse("makes a tensor of what is no storage, offset, shape and strides")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise machine.refuse("has a tensor whose offset, sizes and strides are not all whole numbers >= 0")
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise machine.refuse(f"has a tensor of {len(shape)} sizes and {len(strides)} strides")
    tensor = Strided(storage, offset, shape, strides)
    # A stride of 0 would let one number stand for a tensor of any size.
    if max(offset + tensor.span, math.prod(shape)) > storage.count:
        raise machine.refuse(f"has a tensor that does not fit its storage {shown(storage.key)}")
    return tensor


def _parameter(machine: _Machine, arguments: tuple[Any, ...]) -> Strided:
    if len(arguments) != 3 or not isinstance(arguments[0], Strided):
        raise machine.refuse("makes a parameter of what is no tensor")
    return arguments[0]


CALLS: dict[str, Callable[[_Machine, tuple[Any, ...]], Any]] = {
    "collections.OrderedDict": _table,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
}
STORAGE_NAMES = {f"torch.{name}" for name in STORAGES}

NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES")
ACTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": lambda machine, value: None,
    "FRAME": lambda machine, value: None,
    "STOP": lambda machine, value: None,
    "NONE": lambda machine, value: machine.push(None),
    "NEWTRUE": lambda machine, value: machine.push(True),
    "NEWFALSE": lambda machine, value: machine.push(False),
    "EMPTY_DICT": lambda machine, value: machine.push({}),
    "EMPTY_LIST": lambda machine, value: machine.push([]),
    "EMPTY_TUPLE": lambda machine, value: machine.push(()),
    "MARK": lambda machine, value: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, value: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, value: machine.push(tuple(machine.popped(1))),
    "TUPLE2": lambda machine, value: machine.push(tuple(machine.popped(2))),
    "TUPLE3": lambda machine, value: machine.push(tuple(machine.popped(3))),
    "APPEND": lambda machine, value: machine.extend(machine.popped(1)),
    "APPENDS": lambda machine, value: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, value: machine.fill(machine.popped(2)),
    "SETITEMS": lambda machine, value: machine.fill(machine.since_mark()),
    "BINPUT": lambda machine, value: machine.remember(value),
    "LONG_BINPUT": lambda machine, value: machine.remember(value),
    "MEMOIZE": lambda machine, value: machine.remember(len(machine.memo)),
    "BINGET": lambda machine, value: machine.recall(value),
    "LONG_BINGET": lambda machine, value: machine.recall(value),
    "GLOBAL": lambda machine, value: machine.name(value.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda machine, value: machine.stack_name(),
    "REDUCE": lambda machine, value: machine.call(),
    "BUILD": lambda machine, value: machine.build(),
    "BINPERSID": lambda machine, value: machine.persistent(),
}
ACTIONS |= dict.fromkeys(NUMBERS + TEXTS, _Machine.push)
