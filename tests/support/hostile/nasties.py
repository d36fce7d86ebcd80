"""Messages that have broken consumers before: bodies, headers, keys and versions, made in code, each with a name."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from oncemq.message.envelope import Message

FOUR_MIB = 4 * 1024 * 1024

VALUES = {
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "minus zero": "-0",
    "minus zero as float": "-0.0",
    "float": "1.5",
    "whole float": "1.0",
    "exponent": "1e3",
    "overflowing exponent": "1e999",
    "negative overflow": "-1e999",
    "underflow": "1e-999",
    "overflow without exponent": "9" * 400 + ".0",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "2^31": str(2**31),
    "2^53 + 1": str(2**53 + 1),
    "2^63 - 1": str(2**63 - 1),
    "2^63": str(2**63),
    "minus 2^63": str(-(2**63)),
    "minus 2^63 - 1": str(-(2**63) - 1),
    "2^64": str(2**64),
    "255 digits": "9" * 255,
    "256 digits": "9" * 256,
    "1,000 digits": "9" * 1000,
    "1,001 digits": "9" * 1001,
    "5,000 digits": "9" * 5000,
    "500,000 digits": "9" * 500_000,
    "leading zero": "007",
    "plus sign": "+7",
    "hexadecimal": "0x1F",
    "underscore": "1_000",
    "lone minus": "-",
    "dot first": ".5",
    "dot last": "5.",
    "empty text": '""',
    "one space": '" "',
    "line feed escaped": '"\\n"',
    "line feed raw": '"\n"',
    "tab raw": '"\t"',
    "carriage return and line feed": '"a\\r\\nLevel: ERROR"',
    "ANSI colour": '"\\u001b[31mred"',
    "NUL escaped": '"\\u0000"',
    "NUL in the middle": '"a\\u0000b"',
    "NUL raw": '"a\0b"',
    "SOH and STX": '"\\u0001\\u0002"',
    "DEL": '"\\u007f"',
    "C1 control": '"\\u0085"',
    "high surrogate": '"\\ud800"',
    "low surrogate": '"\\udc00"',
    "surrogates in the wrong order": '"\\udc00\\ud800"',
    "two high surrogates": '"\\ud800\\ud800"',
    "high surrogate in capitals": '"\\uDBFF"',
    "surrogate pair": '"\\ud83d\\ude00"',
    "surrogate after a backslash": '"\\\\ud800"',
    "noncharacter": '"\\uffff"',
    "byte order mark as text": '"\\ufeff"',
    "right-to-left override": '"\\u202egnp.exe"',
    "zero width space": '"\\u200b"',
    "combining marks": '"' + "a" + "\u0301" * 100 + '"',
    "composed": '"\u00e9"',
    "decomposed": '"e\u0301"',
    "255 bytes": '"' + "k" * 255 + '"',
    "256 bytes": '"' + "k" * 256 + '"',
    "255 two-byte characters": '"' + "\u00e9" * 255 + '"',
    "128 two-byte characters": '"' + "\u00e9" * 128 + '"',
    "one megabyte": '"' + "k" * 1_000_000 + '"',
    "255 colons": '"' + ":" * 255 + '"',
    "255 percent signs": '"' + "%" * 255 + '"',
    "SQL": '"\'; DROP TABLE oncemq_processed; --"',
    "SQL comment": '"a/**/b"',
    "backslash and quote": '"\\\\\\""',
    "percent format": '"%s%n%(key)s"',
    "brace format": '"{0.__class__}"',
    "shell": '"$(reboot)`id`"',
    "path": '"../../../../etc/passwd"',
    "lookup": '"${jndi:ldap://nowhere.invalid/a}"',
    "markup": '"<script>alert(1)</script>"',
    "trailing space": '"zz "',
    "leading space": '" zz"',
    "Turkish dotless i": '"\u0131"',
    "sharp s": '"\u00df"',
    "fullwidth digits": '"\uff11\uff12"',
    "Arabic digits": '"\u0661\u0662"',
    "superscript two": '"\u00b2"',
    "array": "[1]",
    "array of the key": '["o-1"]',
    "empty array": "[]",
    "object": '{"id": 1}',
    "empty object": "{}",
    "tag of a serializer": '{"__class__": "os.system"}',
    "proto": '{"__proto__": {"admin": true}}',
    "undefined": "undefined",
    "None": "None",
    "single quotes": "'a'",
    "nothing": "",
    "comment": "/* */ 1",
    "invalid escape": '"\\x41"',
    "short escape": '"\\u12"',
    "escape of no hex": '"\\uZZZZ"',
    "unterminated": '"abc',
    "unterminated escape": '"abc\\',
}

SHAPES: dict[str, bytes] = {
    "no bytes": b"",
    "spaces only": b" \r\n\t ",
    "NUL only": b"\0",
    "a thousand NULs": b"\0" * 1000,
    "one brace": b"{",
    "one bracket": b"[",
    "one quote": b'"',
    "closing only": b"]}",
    "comma": b",",
    "text": b"hello",
    "number": b"1",
    "null": b"null",
    "true": b"true",
    "string": b'"o-1"',
    "array of objects": b'[{"order_id": "o-1"}]',
    "two values": b'{"order_id": "o-1"}{"order_id": "o-2"}',
    "two lines": b'{"order_id": "o-1"}\n{"order_id": "o-2"}\n',
    "trailing NUL": b'{"order_id": "o-1"}\0',
    "trailing comma": b'{"order_id": "o-1",}',
    "missing colon": b'{"order_id" "o-1"}',
    "missing value": b'{"order_id":}',
    "unquoted name": b'{order_id: "o-1"}',
    "single quoted": b"{'order_id': 'o-1'}",
    "number as name": b'{1: "o-1"}',
    "same name twice": b'{"order_id": "o-1", "order_id": "o-2"}',
    "same name twice, one escaped": b'{"order_id": "o-1", "order\\u005fid": "o-2"}',
    "same name twice below": b'{"order_id": "o-1", "x": [{"a": 1, "a": 1}]}',
    "empty name": b'{"": 1, "order_id": "o-1"}',
    "name with NUL": b'{"order_id\\u0000": "o-1"}',
    "name of half a surrogate pair": b'{"\\ud800": 1, "order_id": "o-1"}',
    "surrogate far away": b'{"order_id": "o-1", "note": {"deep": ["\\udfff"]}}',
    "wrong case": b'{"Order_ID": "o-1"}',
    "JSON in JSON": json.dumps(json.dumps({"order_id": "o-1"})).encode(),
    "byte order mark": b'\xef\xbb\xbf{"order_id": "o-1"}',
    "two byte order marks": b'\xef\xbb\xbf\xef\xbb\xbf{"order_id": "o-1"}',
    "byte order mark only": b"\xef\xbb\xbf",
    "byte order mark and space": b'\xef\xbb\xbf {"order_id": "o-1"}',
    "leading space": b'  \n{"order_id": "o-1"}',
    "trailing space": b'{"order_id": "o-1"}  \r\n',
    "leading no-break space": b'\xc2\xa0{"order_id": "o-1"}',
    "form feed": b'\x0c{"order_id": "o-1"}',
    "UTF-16": '{"order_id": "o-1"}'.encode("utf-16"),
    "UTF-16, little endian": '{"order_id": "o-1"}'.encode("utf-16-le"),
    "UTF-16, big endian": '{"order_id": "o-1"}'.encode("utf-16-be"),
    "UTF-32": '{"order_id": "o-1"}'.encode("utf-32"),
    "UTF-7": '{"order_id": "ö"}'.encode("utf-7"),
    "Latin-1": '{"order_id": "ö"}'.encode("latin-1"),
    "Shift JIS": '{"order_id": "注文"}'.encode("shift_jis"),
    "GB18030": '{"order_id": "订单"}'.encode("gb18030"),
    "surrogate as three bytes": b'{"order_id": "\xed\xa0\x80"}',
    "overlong slash": b'{"order_id": "\xc0\xaf"}',
    "overlong NUL": b'{"order_id": "\xc0\x80"}',
    "beyond unicode": b'{"order_id": "\xf4\x90\x80\x80"}',
    "cut inside a character": b'{"order_id": "\xe2\x82',
    "lone continuation": b'{"order_id": "\x80"}',
    "invalid at the end": b'{"order_id": "o-1"}\xff',
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins\x94.",
    "MessagePack": b"\x81\xa8order_id\xa3o-1",
    "protobuf": b"\x0a\x03o-1\x10\x01",
    "Avro with schema id": b"\x00\x00\x00\x00\x01\x06o-1",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "b">]><a>&b;</a>',
    "YAML": b"order_id: o-1\n",
    "form": b"order_id=o-1&x=2",
    "gzip without header": gzip.compress(b'{"order_id": "o-1"}'),
    "HTML of a proxy": b"<html><body>502 Bad Gateway</body></html>",
    "one byte too many": b'{"order_id": "o-1", "x": "' + b"x" * FOUR_MIB + b'"}',
    "much too large": b"[" + b"1," * FOUR_MIB + b"1]",
    "largest allowed text": b'{"order_id": "o-1", "x": "' + b"x" * (FOUR_MIB - 100) + b'"}',
    "many fields": json.dumps({"order_id": "o-1"} | {f"f{n}": n for n in range(20_000)}).encode(),
    "long field name": b'{"order_id": "o-1", "' + b"n" * 1_000_000 + b'": 1}',
    "long field name twice": b'{"' + b"n" * 100_000 + b'": 1, "' + b"n" * 100_000 + b'": 1}',
    "many fields twice": b"{" + b",".join(b'"f%d":1' % (n % 15_000) for n in range(30_000)) + b"}",
    "many integers": b'{"order_id": "o-1", "x": [' + b"1," * 100_000 + b"1]}",
    "many floats": b'{"order_id": "o-1", "x": [' + b"1.5," * 50_000 + b"1.5]}",
    "many backslashes": b'{"order_id": "o-1", "x": "' + b"\\\\" * 100_000 + b'"}',
    "many escapes": b'{"order_id": "o-1", "x": "' + b"\\u00e9" * 100_000 + b'"}',
    "many surrogate pairs": b'{"order_id": "o-1", "x": "' + b"\\ud83d\\ude00" * 50_000 + b'"}',
    "many quotes": b'{"order_id": "o-1", "x": "' + b'\\"' * 100_000 + b'"}',
    "brackets inside a text": b'{"order_id": "o-1", "x": "' + b"[{" * 100_000 + b'"}',
    "brackets inside a text, behind an escaped quote": b'{"order_id": "o-1", "x": "\\"'
    + b"[{" * 1000
    + b'"}',
    "too many integers": b'{"order_id": "o-1", "x": [' + b"1," * 2_000_000 + b"1]}",
    "too many empty objects": b'{"order_id": "o-1", "x": [' + b"{}," * 1_000_000 + b"{}]}",
    "too many numbers with exponents": b"[" + b"1e1," * 1_000_000 + b"1]",
    "too many texts": b"[" + b'"",' * 1_000_000 + b"1]",
    "many commas inside a text": b'{"order_id": "o-1", "x": "' + b"," * 4_000_000 + b'"}',
    "many empty objects": b'{"order_id": "o-1", "x": [' + b"{}," * 50_000 + b"{}]}",
    "many empty arrays": b'{"order_id": "o-1", "x": [' + b"[]," * 50_000 + b"[]]}",
}

DEPTHS = (99, 100, 101, 500, 1000, 100_000, 2_000_000)

ENCODINGS: dict[str, tuple[str, bytes]] = {
    "empty": ("", b'{"order_id": "o-1"}'),
    "a charset": ("UTF-8", b'{"order_id": "o-1"}'),
    "identity": ("identity", b'{"order_id": "o-1"}'),
    "gzip": ("gzip", gzip.compress(b'{"order_id": "o-1"}')),
    "gzip in capitals": (" GZIP ", gzip.compress(b'{"order_id": "o-1"}')),
    "deflate": ("deflate", zlib.compress(b'{"order_id": "o-1"}')),
    "raw deflate": ("deflate", zlib.compress(b'{"order_id": "o-1"}')[2:-4]),
    "gzip said, plain sent": ("gzip", b'{"order_id": "o-1"}'),
    "gzip said, nothing sent": ("gzip", b""),
    "gzip said, deflate sent": ("gzip", zlib.compress(b"{}")),
    "gzip cut": ("gzip", gzip.compress(b'{"order_id": "o-1"}')[:-5]),
    "gzip with a wrong checksum": ("gzip", gzip.compress(b'{"order_id": "o-1"}')[:-8] + b"\0" * 8),
    "gzip twice": ("gzip", gzip.compress(gzip.compress(b'{"order_id": "o-1"}'))),
    "two gzip members": ("gzip", gzip.compress(b'{"order_id"') + gzip.compress(b': "o-1"}')),
    "many gzip members": ("gzip", gzip.compress(b"") * 100_000),
    "gzip and rubbish": ("gzip", gzip.compress(b"{}") + b"rubbish"),
    "gzip bomb": ("gzip", gzip.compress(b"0" * 64_000_000)),
    "deflate bomb": ("deflate", zlib.compress(b"[" * 64_000_000, 9)),
    "bomb just above the limit": ("gzip", gzip.compress(b" " * (FOUR_MIB + 1))),
    "brotli": ("br", b"\x0b\x02\x80{}\x03"),
    "two encodings": ("gzip, gzip", b"{}"),
    "forged header": ("gzip\r\nx: y", b"{}"),
    "half a surrogate pair": ("\ud800", b"{}"),
    "NUL": ("\0", b"{}"),
    "long": ("g" * 100_000, b"{}"),
}

TEXTS = {
    "empty": "",
    "NUL": "\0",
    "half a surrogate pair": "\udcff",
    "long": "h" * 100_000,
    "line feed": "a\nb",
    "ANSI": "\x1b[2J",
    "plain": "o-1",
}


@dataclass(frozen=True)
class Nasty:
    """One message and what is nasty about it."""

    label: str
    message: Message


def nasties() -> Iterator[Nasty]:
    """Yield every nasty message; more than two hundred."""
    for label, value in VALUES.items():
        body = f'{{"order_id": {value}, "version": 1}}'.encode("utf-8", "surrogatepass")
        yield Nasty(f"key: {label}", Message("orders", body))
        body = f'{{"order_id": "o-1", "version": {value}}}'.encode("utf-8", "surrogatepass")
        yield Nasty(f"version: {label}", Message("orders", body))
    for label, body in SHAPES.items():
        yield Nasty(f"body: {label}", Message("orders", body))
    for depth in DEPTHS:
        yield from _nested(depth)
    for label, (encoding, body) in ENCODINGS.items():
        yield Nasty(
            f"content-encoding: {label}", Message("orders", body, headers={"content-encoding": encoding})
        )
    for label, text in TEXTS.items():
        yield Nasty(f"header: {label}", Message("orders", b'{"version": 1}', None, {"tenant": text}))
        yield Nasty(f"header's name: {label}", Message("orders", b'{"version": 1}', None, {text: "x"}))
        yield Nasty(f"broker's key: {label}", Message("orders", b'{"version": 1}', None, {}, (text,)))
        yield Nasty(f"message id: {label}", Message("orders", b'{"version": 1}', text))


def _nested(depth: int) -> Iterator[Nasty]:
    arrays = b'{"order_id": "o-1", "version": 1, "x": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    yield Nasty(f"arrays {depth:,} deep", Message("orders", arrays))
    yield Nasty(f"arrays {depth:,} deep, never closed", Message("orders", b"[" * depth))
    yield Nasty(f"objects {depth:,} deep, never closed", Message("orders", b'{"a":' * depth))
    closed = b'{"order_id":' * depth + b"1" + b"}" * depth
    yield Nasty(f"objects {depth:,} deep", Message("orders", closed))
