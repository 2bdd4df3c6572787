// SPDX-License-Identifier: Apache-2.0
// AnswerDelta: what is new in a model's answer, in the terms of every chat API: reasoning, content,
// tool calls. An adapter translates a list of them into its own events and looks at no text itself.
//
// The deltas of an answer obey this order:
//
//   ReasoningDelta*  then any number of:  ContentDelta*  |  ToolCallBegin ArgumentsDelta*
//   ToolCallEnd
//
// Calls come one after the other and are numbered from 0. The `json` of a call's ArgumentsDeltas,
// put together, is one JSON object if its ToolCallEnd is `complete`. gpt-oss may go on reasoning
// after content.
//
// No delta is empty but a ToolCallBegin's arguments. How the answer's text was cut when it was
// parsed decides where its deltas are cut and nothing else. Whole UTF-8 characters in give whole
// characters out.
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

// `complete` is false for a call that the answer's end cut off (`cut`), whose arguments end where
// the answer does, and for one that turned out to be malformed after it was announced. A stream
// cannot take the latter back; an answer sent as a whole shows `text`, what the model wrote,
// instead of it. `text` is empty unless AnswerParserOptions::keep_call_text.
struct ToolCallEnd {
  size_t index = 0;
  bool complete = true;
  std::string text;
  bool cut = false;

  bool operator==(const ToolCallEnd&) const = default;
};

// How a text ends that is being read.
enum class TextEnd : uint8_t {
  kNone,     // the text continues
  kStopped,  // the model ended it: open parts are completed if they have only one meaning
  kCut,  // a limit or a client's stop text cut it: the beginning of a mark at its end is dropped
};

using AnswerDelta =
    std::variant<ReasoningDelta, ContentDelta, ToolCallBegin, ArgumentsDelta, ToolCallEnd>;
using AnswerDeltas = std::vector<AnswerDelta>;

// Appends text to the last delta if that has the same kind, otherwise as a new delta; nothing if
// `text` is empty.
void add_reasoning(std::string_view text, AnswerDeltas& out);
void add_content(std::string_view text, AnswerDeltas& out);
void add_arguments(size_t index, std::string_view json, AnswerDeltas& out);

// Appends a delta, to the last one where both are text of one kind.
void append(AnswerDelta&& delta, AnswerDeltas& out);

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object; the beginning of one unless `complete`
  bool complete = true;

  bool operator==(const ToolCall&) const = default;
};

// An answer's deltas put together, for answers that are sent as a whole. Thread-compatible.
struct AssembledAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  // A call that was cut stays, as in a stream. One that is malformed is removed; its text becomes
  // content.
  void add(AnswerDelta&& delta);

  bool operator==(const AssembledAnswer&) const = default;
};

}  // namespace heddle::parsers
