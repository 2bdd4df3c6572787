// SPDX-License-Identifier: Apache-2.0
// ToolCallParser finds tool calls in an answer's content. This class knows what all formats share:
// text before and between calls, marks that may begin a call, white space that a call swallows,
// numbers and ids. A format says what its calls look like inside.
//
// Text that looks like a call at first is held back until it is certain: at most kMaxHeaderBytes,
// white space at most kMaxSpaceBytes. Text that proves to be no call is content. Text between and
// after calls is content unless it is blank.
//
// A mark that is missing, doubled or misspelt costs itself only. A call may lack its mark where a
// line begins with what only a call of one of the request's tools does. A misspelt mark counts if
// such a call follows it. Marks that belong to nothing are dropped where they stand alone. Between
// the format's marks a call of one of the request's tools may be written as another format's: a
// JSON object with the tool's name, or f(x=1). Code fences and tags that are none of the format's
// around calls (<tools>, <function_calls>) are dropped.
//
// The text that is not read yet is the owner's: read() is given all of it each time.
//
// Threading: thread-compatible.
// Cost:      O(text), however it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_delta.h"
#include "parsers/call_header.h"
#include "parsers/json_arguments.h"
#include "parsers/loose_tag.h"
#include "parsers/marker_search.h"
#include "parsers/python_arguments.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

// The places where a call may begin.
enum class Place {
  kMarker,  // at one of the format's marks, or at a tag that is like one
  kStart,   // at the very beginning of the content, without a mark
  kLine,    // where a later line begins, without a mark
  kNext,    // right after another call
};

struct ToolCallParserOptions {
  // The id of a call that the model gives none.
  std::function<std::string(std::string_view name, size_t index)> make_id;
  std::shared_ptr<const ToolNames> names;  // never null
  bool parallel = true;                    // false: calls after the first are dropped
  bool is_exact = false;                   // AnswerParserOptions::is_held_to_form
  bool keep_call_text = false;             // see ToolCallEnd
};

// The marks of a format.
struct CallMarks {
  std::vector<std::string_view> markers;        // may begin a call anywhere
  std::vector<std::string_view> opening_words;  // words of similar tags that open (loose_tag.h)
  std::vector<std::string_view> strays;         // closing marks, dropped if nothing is open
  std::vector<std::string_view> other_ends;     // also end a call, but may be content
  bool are_special = false;                     // special tokens: even a single mark is not text
  bool may_be_missing = false;                  // a line may begin with an unmarked call
  bool start_may_be_call = false;               // so may the content, even for unknown tools
};

class ToolCallParser {
 public:
  static constexpr size_t kMaxSpaceBytes = 4 << 10;

  virtual ~ToolCallParser() = default;

  // Consumes the decided part of `text`, the unread text, and returns its number of bytes. `end`
  // says whether more will come.
  size_t read(std::string_view text, TextEnd end, AnswerDeltas& out);

  // The same for calls nested in other text, the first of which begins here. `over` is set if no
  // call or related mark follows; the text there is not consumed.
  size_t read_calls(std::string_view text, TextEnd end, AnswerDeltas& out, bool& over);

  // Ends the text; `unread` is the text that read() did not consume. Called once.
  void finish(std::string_view unread, TextEnd end, AnswerDeltas& out);

  // Adds a mark of something else that is dropped where it stands alone: a closing tag of
  // reasoning. `is_special`: a special token, which is dropped everywhere.
  void add_stray(std::string_view mark, bool is_special = false) {
    strays_.push_back(mark);
    if (is_special) special_strays_.push_back(mark);
  }

  // A mark at which something else begins, where it begins a line that is not within a code fence:
  // the opening tag of reasoning. read() ends before it, and at_stop() is true until pass_stop().
  void stop_at(std::string_view mark) { stop_ = mark; }

  [[nodiscard]] bool at_stop() const { return at_stop_; }

  void pass_stop() { at_stop_ = false; }

  // See AnswerParser::is_call_end().
  [[nodiscard]] bool is_call_end(std::string_view text) const;

  // The marks that may begin a call anywhere.
  [[nodiscard]] const std::vector<std::string_view>& markers() const { return marks_.markers; }

  // Whether `text`, which begins with a mark, begins a call.
  [[nodiscard]] CallHeader read_marked_header(std::string_view text) const;

 protected:
  ToolCallParser(CallMarks marks, ToolCallParserOptions options);

  // Whether `text` begins a call, as far as it goes; with `at_end` it goes no further. Changes
  // nothing. `is_exact` is false for a tag that is only like a mark.
  [[nodiscard]] virtual CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                               bool at_end) const = 0;

  // Whether a line that begins so may be a call without its mark, by its first bytes.
  [[nodiscard]] virtual Match may_begin_line(std::string_view text) const {
    (void)text;
    return Match::kNo;
  }

  // The three below are for formats whose headers have ArgumentsKind::kFormat. A call begins, of
  // which `header` was read.
  virtual void begin_format_call(const CallHeader& header) { (void)header; }

  // Reads arguments off the front of `text`, `used` bytes of it, and emits them. kFailed: what was
  // emitted is an incomplete call, what was not used is content.
  virtual Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                                  AnswerDeltas& out);

  // The answer has stopped inside of the arguments. True: they are complete, and the rest of them
  // was emitted.
  virtual bool finish_arguments(AnswerDeltas& out);

  // Closing marks and what else follows a call and belongs to it. `kMore` if it takes more text to
  // tell, `kYes` with the size for some of it, `kNo` when there is nothing left of it. White space
  // before it is read already.
  [[nodiscard]] virtual Closing read_closing(std::string_view text) = 0;

  // For read_closing(): `exact` tags, those that mean one of `words`, and brackets and separators
  // that belong to nothing.
  [[nodiscard]] static Closing read_loose_closing(std::string_view text,
                                                  std::span<const std::string_view> exact,
                                                  std::span<const std::string_view> words,
                                                  bool needs_slash = true);

  void emit_arguments(std::string_view json, AnswerDeltas& out);

  // Ends the arguments with a separate delta, the last one.
  void emit_last_arguments(std::string_view json, AnswerDeltas& out);

  // For arguments of this tool: the parameter that is meant by a key.
  [[nodiscard]] JsonScanner::KeyReader key_reader(const std::string& tool) const;

  [[nodiscard]] const ToolNames& names() const { return *options_.names; }

  [[nodiscard]] bool is_exact() const { return options_.is_exact; }

  [[nodiscard]] bool is_opening(const LooseTag& tag) const;

 private:
  enum class State : uint8_t { kText, kCall, kAfterCall };
  enum class Found : uint8_t {
    kNothing,
    kBeginning,
    kMark,
    kLooseMark,
    kBareMark,  // without its first bracket
    kLine,
    kFence,
    kWrapper,  // a tag that may stand around calls
    kStray,
    kStop
  };

  // Where something may begin; kNothing at the text's end.
  struct Candidate {
    size_t position = 0;
    Found found = Found::kNothing;
    size_t size = 0;
  };

  size_t step(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_text(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_mark(const Candidate& mark, std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_stray(const Candidate& mark, std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_after_call(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_call(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t start_call(CallHeader header, std::string_view text, AnswerDeltas& out);
  void begin_call(CallHeader header, std::string_view text, AnswerDeltas& out);
  void end_call(bool complete, AnswerDeltas& out, bool cut = false);
  [[nodiscard]] Candidate find_candidate(std::string_view text) const;
  [[nodiscard]] Candidate candidate_at(std::string_view text, bool line_begins,
                                       bool call_may_begin_line) const;
  [[nodiscard]] LooseTag read_bare_mark(std::string_view text) const;

  [[nodiscard]] char bracket() const { return marks_.markers.front().front(); }

  [[nodiscard]] bool line_begins() const;
  [[nodiscard]] bool stands_alone(std::string_view behind) const;
  [[nodiscard]] CallHeader header_at(std::string_view text, Place place, bool is_exact,
                                     TextEnd end) const;
  [[nodiscard]] CallHeader unwrapped(CallHeader header, std::string_view text) const;
  [[nodiscard]] Closing empty_list(std::string_view text) const;
  [[nodiscard]] Match has_endless_tags(std::string_view text) const;
  [[nodiscard]] CallHeader read_other_header(std::string_view text, bool is_marked) const;
  [[nodiscard]] CallHeader read_wrapped_header(std::string_view text, TextEnd end) const;
  [[nodiscard]] CallHeader header_inside(std::string_view text, bool says_call, TextEnd end) const;
  Progress read_call_arguments(std::string_view text, TextEnd end, size_t& used, AnswerDeltas& out);
  bool finish_call_arguments(AnswerDeltas& out);
  [[nodiscard]] Closing read_call_closing(std::string_view text);
  [[nodiscard]] JsonScanner scanner_of(const std::string& tool) const;
  void emit_text(std::string_view text, AnswerDeltas& out);

  [[nodiscard]] bool dropped() const { return !options_.parallel && num_calls_ > 1; }

  const CallMarks marks_;
  const ToolCallParserOptions options_;
  std::vector<std::string_view> strays_;
  std::vector<std::string_view> special_strays_;  // strays that are special tokens
  std::string_view stop_;                         // see stop_at()
  bool at_stop_ = false;
  State state_ = State::kText;
  Patience patience_{kMaxHeaderBytes};
  bool at_start_ = true;     // nothing but white space was read
  char last_byte_ = '\n';    // last byte of the content
  std::string space_;        // held back
  bool long_space_ = false;  // the space grew too long and is text
  size_t num_calls_ = 0;
  bool blank_since_call_ = false;  // nothing but white space has come since a call
  bool fence_is_open_ = false;     // a code fence began before a call
  bool in_code_ = false;           // a code fence began in text
  // Kind of the current call's arguments.
  ArgumentsKind kind_ = ArgumentsKind::kFormat;
  JsonArguments json_;
  std::optional<PythonArguments> python_;
  std::string call_text_;
  bool keeps_stray_ = false;  // the mark that ends a call which is shown as text
};

// Content in which no calls are looked for.
class NoCallParser final : public ToolCallParser {
 public:
  NoCallParser();

 private:
  CallHeader read_header(std::string_view, Place, bool, bool) const override { return {}; }

  Closing read_closing(std::string_view) override { return {}; }
};

}  // namespace heddle::parsers
