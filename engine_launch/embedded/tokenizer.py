"""Text to token ids and back, from a tokenizer file made out of the GGUF's own vocabulary."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as BpeTokenizer

from engine_launch.embedded.api import EngineError

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""GPT-2's pre-tokenizer."""


@dataclass(frozen=True)
class TokenizerData:
    """What the file says of its tokenizer (``tokenizer.*`` keys)."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    """Token texts in the byte-level alphabet; the index is the id."""
    control_ids: tuple[int, ...]
    """Ids of control tokens: never produced from ordinary text, and left out of decoded answers."""
    merges: tuple[str, ...]
    bos_token_id: int | None
    eos_token_id: int
    add_bos_token: bool
    chat_template: str | None


def build_bpe(data: TokenizerData) -> BpeTokenizer:
    """A ``tokenizers`` BPE from the vocabulary, merges and pre-tokenizer type of a GGUF file.

    Raises:
        EngineError: another kind of tokenizer than byte-level BPE, a pre-tokenizer that is not known here, or merges of tokens
            that there are not.
    """
    if data.model != "gpt2":
        raise EngineError(f"the model's tokenizer is of kind {data.model!r}; the embedded engine reads 'gpt2' (byte-level BPE)")
    split = pre_tokenizers.Split(Regex(GPT2_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps: list[pre_tokenizers.PreTokenizer]
    if data.pre == "smollm":
        # SmolLM splits every digit off before GPT-2's rule is applied.
        steps = [pre_tokenizers.Digits(individual_digits=True), split, byte_level]
    elif data.pre in ("gpt-2", "default"):
        steps = [split, byte_level]
    else:
        raise EngineError(f"the model's pre-tokenizer {data.pre!r} is not known to the embedded engine")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in data.merges)]
    try:
        bpe = BpeTokenizer(models.BPE(vocab={text: index for index, text in enumerate(data.tokens)}, merges=merges))
    except Exception as error:  # `tokenizers` raises bare Exception
        raise EngineError(f"the model's tokenizer contradicts itself: {error}") from error
    bpe.pre_tokenizer = pre_tokenizers.Sequence(steps)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(data.tokens[index], special=True, normalized=False) for index in data.control_ids])
    return bpe


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in character for each byte value, as character → byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + index): byte for index, byte in enumerate(rest)})
    return table


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a conversation; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


class Tokenizer:
    """The target's tokenizer and chat template."""

    def __init__(
        self,
        bpe: BpeTokenizer,
        *,
        eos_token_id: int,
        bos_token_id: int | None,
        control_ids: Iterable[int],
        chat_template: str | None,
    ) -> None:
        self._bpe = bpe
        self.eos_token_id = eos_token_id
        self.bos_token_id = bos_token_id
        self.control_ids = frozenset(control_ids)
        self.chat_template = chat_template

    @classmethod
    def build(cls, data: TokenizerData) -> Tokenizer:
        """What a GGUF file has. Raises: EngineError: as :func:`build_bpe`."""
        return cls(
            build_bpe(data),
            eos_token_id=data.eos_token_id,
            bos_token_id=data.bos_token_id,
            control_ids=data.control_ids,
            chat_template=data.chat_template,
        )

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json`` and ``tokenizer_meta.json`` as :meth:`save` left them.

        Raises:
            EngineError: a file is missing or is not what :meth:`save` writes.
        """
        try:
            meta = json.loads((folder / "tokenizer_meta.json").read_text(encoding="utf-8"))
            bpe = BpeTokenizer.from_file(str(folder / "tokenizer.json"))
            return cls(
                bpe,
                eos_token_id=int(meta["eos_token_id"]),
                bos_token_id=meta["bos_token_id"],
                control_ids=[int(index) for index in meta["control_ids"]],
                chat_template=meta["chat_template"],
            )
        except Exception as error:  # `tokenizers` raises bare Exception
            raise EngineError(f"the tokenizer in {folder} cannot be read ({error}); delete that folder") from error

    def save(self, folder: Path) -> None:
        """Write the two files that :meth:`load` reads.

        Raises:
            OSError: the folder cannot be written.
        """
        try:
            self._bpe.save(str(folder / "tokenizer.json"), pretty=False)
        except Exception as error:  # `tokenizers` raises bare Exception
            raise OSError(str(error)) from error
        meta = {
            "eos_token_id": self.eos_token_id,
            "bos_token_id": self.bos_token_id,
            "control_ids": sorted(self.control_ids),
            "chat_template": self.chat_template,
        }
        (folder / "tokenizer_meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        return int(self._bpe.get_vocab_size())

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of ``text``; control tokens written out in it (``<|im_start|>``) become their ids."""
        return tuple(self._bpe.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(index, skip_special=skip_special) for index in ids).decode("utf-8", "replace")

    def token_bytes(self, index: int, *, skip_special: bool = True) -> bytes:
        """The bytes that one token stands for; empty for a control token (when skipped) or an unknown id."""
        if index in self.control_ids:
            return b"" if skip_special else (self._bpe.id_to_token(index) or "").encode("utf-8")
        text = self._bpe.id_to_token(index)
        if text is None:
            return b""
        return bytes(self._bytes_of[char] for char in text if char in self._bytes_of)

    def token_text(self, index: int) -> str:
        """One token for display, control tokens by name."""
        return self.token_bytes(index, skip_special=False).decode("utf-8", "replace")

    @cached_property
    def _bytes_of(self) -> Mapping[str, int]:
        return byte_alphabet()

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """A new streaming detokeniser for one answer."""
        return Detokenizer(self, skip_special=skip_special)

    def apply_chat_template(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> str:
        """The prompt text for a conversation, by the model's own template in a sandbox.

        Raises:
            EngineError: the model has no template, or the template refuses these messages.
        """
        if self.chat_template is None:
            raise EngineError("the model has no chat template; use /v1/completions or /generate with plain text")
        # Imported here: rendering is the only use, and the import is not free at start-up.
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

        def raise_exception(message: str) -> str:
            raise TemplateError(message)

        environment.globals["raise_exception"] = raise_exception
        try:
            return environment.from_string(self.chat_template).render(
                messages=[{"role": message.role, "content": message.content} for message in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token="" if self.bos_token_id is None else self._bpe.id_to_token(self.bos_token_id),
                eos_token=self._bpe.id_to_token(self.eos_token_id),
            )
        except TemplateError as error:
            raise EngineError(f"the model's chat template refused these messages: {error}") from error
        except Exception as error:  # a template is a program out of the model's file, and may fail in any way
            raise EngineError(f"the model's chat template failed: {type(error).__name__}: {error}") from error


class Detokenizer:
    """Token ids in, text out as soon as it is complete: a character whose bytes are split over tokens comes out whole."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Text that these tokens complete; may be empty."""
        return "".join(self._utf8.decode(self._tokenizer.token_bytes(index, skip_special=self._skip_special)) for index in ids)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character, else nothing."""
        return self._utf8.decode(b"", final=True)
