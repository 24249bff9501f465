"""A dissector for Wireshark and tshark, written in Lua from the table of headers.

``tshark -X lua_script:testbed.lua -r ingress.pcapng`` shows the messages; the fields are named
``testbed.base``, ``testbed.loss``, …, as in display filters.
"""

import json

from testbed.training.run_devices import PORT
from testbed.wire.frames import HEADER, MAGIC, PROTOCOL, Kind
from testbed.wire.header_fields import (
    CUT,
    ENCODING_TEXTS,
    ONLY_IF_NOT_0,
    header_fields,
    meant_fields,
)

_TYPES = {"B": "uint8", "H": "uint16", "I": "uint32", "Q": "uint64", "f": "float"}


def dissector() -> str:
    """Return the text of the dissector, to be kept as ``testbed.lua``."""
    return "\n".join([_tables(), _CODE])


def _tables() -> str:
    offsets = {field.name: field.offset for field in header_fields(Kind.PULL)}
    lines = [
        "-- The testbed's messages for Wireshark; made by `testbed traffic --dissector`.",
        f"local PORT, HEADER, CUT = {PORT}, {HEADER.size}, {CUT}",
        "local LARGEST = 2 ^ 31  -- a message that is put together from packets",
        f"local BEGIN = {json.dumps(MAGIC.decode())} .. string.char({PROTOCOL})",
        *(f"local {name.upper()} = {offsets[name]}" for name in ("kind", "zeros", "length")),
        _valued("kinds", {int(kind): kind.name for kind in Kind}),
        _valued("encodings", ENCODING_TEXTS),
        "local fields = {",
        '  kind = ProtoField.uint8("testbed.kind", "kind", base.DEC, kinds),',
    ]
    known = {field.name: field.format for kind in Kind for field in meant_fields(kind)}
    for name, form in known.items():
        more = ", base.DEC, encodings" if name == "encoding" else ""
        lines.append(f'  {name} = ProtoField.{_TYPES[form]}("testbed.{name}", "{name}"{more}),')
    lines += ["}", "local layouts = {"]
    for kind in Kind:
        rows = ", ".join(
            f'{{"{field.name}", {field.offset}, {field.size}, '
            f"{str(field.name in ONLY_IF_NOT_0).lower()}}}"
            for field in meant_fields(kind)
        )
        lines.append(f"  [{int(kind)}] = {{{rows}}},")
    return "\n".join([*lines, "}"])


def _valued(name: str, texts: dict[int, str]) -> str:
    rows = ", ".join(f"[{number}] = {json.dumps(text)}" for number, text in texts.items())
    return f"local {name} = {{{rows}}}"


_CODE = """
local testbed = Proto("testbed", "Testbed message")
fields.length = ProtoField.uint64("testbed.length", "bytes of the body")
fields.worker = ProtoField.uint32("testbed.worker", "worker that opened the connection")
fields.captured = ProtoField.uint64("testbed.captured", "bytes of the body that were captured")
fields.body = ProtoField.bytes("testbed.body", "body")
testbed.fields = fields
local stream = Field.new("tcp.stream")
local workers = {}

function testbed.init() workers = {} end

-- Whether a message begins at a place; the end of its header may not have been captured.
local function begins(tvb, at)
  if tvb:len() - at < HEADER - CUT or tvb(at, 3):raw() ~= BEGIN then return false end
  return kinds[tvb(at + KIND, 1):uint()] ~= nil and tvb(at + ZEROS, 3):uint() == 0
end

local function length_of_body(tvb, at)
  local have = math.min(HEADER - LENGTH, tvb:len() - at - LENGTH)
  return tvb(at + LENGTH, have), tvb(at + LENGTH, have):le_uint64()
end

-- Show the message at a place, of which the tvb may have only the beginning.
local function show(tvb, at, pinfo, tree)
  local range, length = length_of_body(tvb, at)
  local size = length:tonumber()
  local kind = tvb(at + KIND, 1):uint()
  local have = math.min(tvb:len() - at, HEADER + size)
  local branch = tree:add(testbed, tvb(at, have))
  local said = {}
  branch:add(fields.kind, tvb(at + KIND, 1))
  for _, row in ipairs(layouts[kind]) do
    local name, bytes = row[1], tvb(at + row[2], row[3])
    branch:add_le(fields[name], bytes)
    local value
    if name == "encoding" then value = encodings[bytes:uint()] or "unknown"
    elseif name == "loss" then value = string.format("%.6g", bytes:le_float())
    else value = tostring(bytes:le_uint64()) end
    if not (row[4] and value == "0") then said[#said + 1] = name .. "=" .. value end
    if name == "device" then workers[stream().value] = bytes:le_uint() end
  end
  local worker = workers[stream().value]
  if worker then
    branch:add(fields.worker, worker):set_generated()
    table.insert(said, 1, "worker=" .. worker)
  end
  branch:add(fields.length, range, length)
  local captured = math.max(0, have - HEADER)
  branch:add(fields.captured, UInt64(captured)):set_generated()
  if captured > 0 then branch:add(fields.body, tvb(at + HEADER, captured)) end
  if captured < size then branch:append_text(": payload not captured") end
  said[#said + 1] = string.format("%.0f bytes", HEADER + size)
  local line = kinds[kind] .. "(" .. table.concat(said, ", ") .. ")"
  branch:append_text(", " .. line)
  pinfo.cols.info:append(" " .. line)
end

function testbed.dissector(tvb, pinfo, tree)
  local whole = tvb:len() == tvb:reported_len() and pinfo.can_desegment > 0
  local at = 0
  while at < tvb:len() do
    local rest = tvb:len() - at
    if whole and rest < HEADER and tvb(at, math.min(rest, 3)):raw() == BEGIN:sub(1, rest) then
      pinfo.desegment_offset, pinfo.desegment_len = at, DESEGMENT_ONE_MORE_SEGMENT
      return tvb:len()
    end
    if not begins(tvb, at) then return at end  -- the rest of a body that was not captured
    local _, length = length_of_body(tvb, at)
    local size = HEADER + length:tonumber()
    if whole and size > rest and size < LARGEST then
      pinfo.desegment_offset, pinfo.desegment_len = at, size - rest
      return tvb:len()
    end
    if at == 0 then
      pinfo.cols.protocol = "testbed"
      pinfo.cols.info = ""
    end
    show(tvb, at, pinfo, tree)
    at = at + size
  end
  return tvb:len()
end

DissectorTable.get("tcp.port"):add(PORT, testbed)
"""
