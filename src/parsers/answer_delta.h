// SPDX-License-Identifier: Apache-2.0
// AnswerDelta: a new part of a model's answer, in the terms that all chat APIs share: reasoning,
// content, tool calls. An API adapter translates deltas to its own events and never parses text
// itself.
//
// The deltas of an answer obey this order:
//
//   ReasoningDelta*  then any number of:  ContentDelta*  |  ToolCallBegin ArgumentsDelta*
//   ToolCallEnd
//
// Calls follow one another and are numbered from 0. The `json` texts of a call's ArgumentsDeltas,
// concatenated, are one JSON object if the call's ToolCallEnd is `complete`. gpt-oss may continue
// to reason after content.
//
// No delta is empty, except a ToolCallBegin's arguments. How the answer's text was split into
// pieces affects only where deltas are split. If the pieces have whole UTF-8 characters, so have
// the deltas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::parsers {

struct ReasoningDelta {
  std::string text;

  bool operator==(const ReasoningDelta&) const = default;
};

struct ContentDelta {
  std::string text;

  bool operator==(const ContentDelta&) const = default;
};

struct ToolCallBegin {
  size_t index = 0;
  std::string id;
  std::string name;

  bool operator==(const ToolCallBegin&) const = default;
};

struct ArgumentsDelta {
  size_t index = 0;
  std::string json;

  bool operator==(const ArgumentsDelta&) const = default;
};

// `complete` is false in two cases: the end of the answer truncated the call (`cut`), and its
// arguments end there; or the call turned out to be malformed after it was announced. A stream
// cannot retract a malformed call; an answer that is sent as a whole shows `text`, what the model
// wrote, instead of the call. `text` is empty unless AnswerParserOptions::keep_call_text is set.
struct ToolCallEnd {
  size_t index = 0;
  bool complete = true;
  std::string text;
  bool cut = false;

  bool operator==(const ToolCallEnd&) const = default;
};

// How the text that is being parsed ends.
enum class TextEnd : uint8_t {
  kNone,     // the text continues
  kStopped,  // the model ended it: open parts are completed if there is only one way to do so
  kCut,      // a limit or a client's stop text cut it: an incomplete mark at its end is dropped
};

using AnswerDelta =
    std::variant<ReasoningDelta, ContentDelta, ToolCallBegin, ArgumentsDelta, ToolCallEnd>;
using AnswerDeltas = std::vector<AnswerDelta>;

// Appends text to the last delta if that has the same kind, otherwise as a new delta; does nothing
// if `text` is empty.
void add_reasoning(std::string_view text, AnswerDeltas& out);
void add_content(std::string_view text, AnswerDeltas& out);
void add_arguments(size_t index, std::string_view json, AnswerDeltas& out);

// Appends a delta; if it and the last delta are text of the same kind, they are joined.
void append(AnswerDelta&& delta, AnswerDeltas& out);

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object; if not `complete`, only its beginning
  bool complete = true;

  bool operator==(const ToolCall&) const = default;
};

// All deltas of an answer, put together for answers that are sent as a whole. Thread-compatible.
struct AssembledAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  // A truncated call is kept, as in a stream. A malformed call is removed; its text becomes
  // content.
  void add(AnswerDelta&& delta);

  bool operator==(const AssembledAnswer&) const = default;
};

}  // namespace heddle::parsers
