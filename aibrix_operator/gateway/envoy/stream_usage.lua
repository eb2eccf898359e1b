-- Runs in Envoy on each piece of an answer as it passes, and holds nothing back. It finds every `"usage": {…}` in a
-- stream of events and keeps the text of the first and of the last; our side reads that text once, when the request has
-- ended (stream_usage.py). A piece may end anywhere, so what could be the beginning of a usage is kept for the next one.
local NEEDLE = '"usage"'
local MOST = 2048 -- bytes from the needle on: a usage and its details are a few hundred

function envoy_on_response(handle)
  local kind = handle:headers():get("content-type")
  if kind == nil or kind:find("text/event-stream", 1, true) ~= 1 then return end

  local first, kept, last = nil, nil, nil
  local function keep(text)
    first = first or text
    last = text
  end
  local function tell()
    if last == nil or last == kept then return end
    kept = last
    handle:streamInfo():dynamicMetadata():set("aibrix.usage", "texts", first == last and last or first .. "\n" .. last)
  end

  local rest = ""
  for piece in handle:bodyChunks() do
    local text = piece:getBytes(0, piece:length())
    if rest ~= "" then text = rest .. text end
    local from, size = 1, #text
    rest = nil
    while rest == nil do
      local at = text:find(NEEDLE, from, true)
      if at == nil then
        rest = text:sub(math.max(from, size - #NEEDLE + 2))
      else
        local stop = text:find("\n", at, true)
        if stop == nil and size - at < MOST then
          rest = text:sub(at) -- the event goes on in the next piece
        else
          if text:find("^%s*:%s*{", at + #NEEDLE) then
            keep(text:sub(at, math.min((stop or size + 1) - 1, at + MOST - 1)))
          end
          from = at + #NEEDLE
        end
      end
    end
    tell()
  end
  if rest:find("^" .. NEEDLE .. "%s*:%s*{") then
    keep(rest) -- a last event without its line break
    tell()
  end
end
