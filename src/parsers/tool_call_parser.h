// SPDX-License-Identifier: Apache-2.0
// ToolCallParser finds tool calls in an answer's content. This class implements what all formats
// share: text before and between calls, marks that may begin a call, white space next to calls,
// which is dropped, numbers and ids. A derived class parses the inside of its format's calls.
//
// Text that may begin a call is held back until that is decided: at most kMaxHeaderBytes, white
// space at most kMaxSpaceBytes. Text that turns out to be no call is content. Text between and
// after calls is content unless it is blank.
//
// A missing, doubled or misspelt mark affects nothing else. A call may lack its mark if a line
// begins with text that can only be a call of one of the request's tools. A misspelt mark counts if
// such a call follows it. Unrelated marks are dropped if they are alone on a line. Between the
// format's marks a call of one of the request's tools may have another notation: a JSON object with
// the tool's name, or f(x=1). Code fences and foreign tags around calls (<tools>, <function_calls>)
// are dropped.
//
// The caller owns the text that is not consumed yet and passes all of it to each read().
//
// Threading: thread-compatible.
// Cost:      O(text), however it is split.
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

// The positions at which a call may begin.
enum class Place {
  kMarker,  // at one of the format's marks, or at a similar tag
  kStart,   // at the very beginning of the content, without a mark
  kLine,    // at the beginning of a later line, without a mark
  kNext,    // directly after another call
};

struct ToolCallParserOptions {
  // Makes the id of a call for which the model wrote none.
  std::function<std::string(std::string_view name, size_t index)> make_id;
  std::shared_ptr<const ToolNames> names;  // names of the request's tools; never null
  bool parallel = true;                    // false: calls after the first are dropped
  bool is_exact = false;                   // see AnswerParserOptions::is_held_to_form
  bool keep_call_text = false;             // fills in ToolCallEnd::text
};

// The marks of a format.
struct CallMarks {
  std::vector<std::string_view> markers;        // may begin a call anywhere
  std::vector<std::string_view> opening_words;  // words of similar tags that also open a call
                                                // (loose_tag.h)
  std::vector<std::string_view> strays;         // closing marks that are dropped if nothing is open
  std::vector<std::string_view> other_ends;     // marks that also end a call, but may otherwise be
                                                // content
  bool are_special = false;                     // marks are special tokens: a single one is never
                                                // text
  bool may_be_missing = false;                  // a line may begin with a call without its mark
  bool start_may_be_call = false;               // the content may begin with a call without its
                                                // mark, even of an unknown tool
};

class ToolCallParser {
 public:
  static constexpr size_t kMaxSpaceBytes = 4 << 10;

  virtual ~ToolCallParser() = default;

  // Consumes the part of `text`, the unread text, that can be decided, and returns its number of
  // bytes. `end`: kNone if more text may come.
  size_t read(std::string_view text, TextEnd end, AnswerDeltas& out);

  // As read(), for calls inside other text, the first of which begins here. Sets `over` if no call
  // or related mark follows; the text there is not consumed.
  size_t read_calls(std::string_view text, TextEnd end, AnswerDeltas& out, bool& over);

  // Ends the text; `unread` is the text that read() did not consume. Called once.
  void finish(std::string_view unread, TextEnd end, AnswerDeltas& out);

  // Adds a mark of another kind, such as a closing tag of reasoning, that is dropped if it is alone
  // on a line. `is_special`: the mark is a special token, which is dropped everywhere.
  void add_stray(std::string_view mark, bool is_special = false) {
    strays_.push_back(mark);
    if (is_special) special_strays_.push_back(mark);
  }

  // Sets a mark at which read() stops, such as the opening tag of reasoning, if it begins a line
  // outside of code fences. read() ends before the mark, and at_stop() is true until pass_stop().
  void stop_at(std::string_view mark) { stop_ = mark; }

  [[nodiscard]] bool at_stop() const { return at_stop_; }

  void pass_stop() { at_stop_ = false; }

  // As AnswerParser::is_call_end().
  [[nodiscard]] bool is_call_end(std::string_view text) const;

  // The marks that may begin a call anywhere.
  [[nodiscard]] const std::vector<std::string_view>& markers() const { return marks_.markers; }

  // Whether `text`, which begins with a mark, begins a call.
  [[nodiscard]] CallHeader read_marked_header(std::string_view text) const;

 protected:
  ToolCallParser(CallMarks marks, ToolCallParserOptions options);

  // Reads the header of a call at the beginning of `text`, as far as it has arrived; `at_end`: no
  // more text comes. Changes no state. `is_exact` is false for a tag that is only similar to a
  // mark.
  [[nodiscard]] virtual CallHeader read_header(std::string_view text, Place place, bool is_exact,
                                               bool at_end) const = 0;

  // Whether a line with these first bytes may be a call without its mark.
  [[nodiscard]] virtual Match may_begin_line(std::string_view text) const {
    (void)text;
    return Match::kNo;
  }

  // The three functions below are for formats whose headers have ArgumentsKind::kFormat. This one
  // begins a call with the header `header`.
  virtual void begin_format_call(const CallHeader& header) { (void)header; }

  // Consumes arguments at the beginning of `text`, `used` bytes of it, and emits them. kFailed: the
  // arguments emitted so far are an incomplete call, and the rest of the text is content.
  virtual Progress read_arguments(std::string_view text, TextEnd end, size_t& used,
                                  AnswerDeltas& out);

  // The answer stopped within the arguments. Returns true if they are complete; emits their rest.
  virtual bool finish_arguments(AnswerDeltas& out);

  // Reads closing marks and other text that follows a call and belongs to it. `kYes`: `size` bytes
  // of it were found; `kNo`: there is no more of it; `kMore`: more text is needed to decide. White
  // space before it has been consumed already.
  [[nodiscard]] virtual Closing read_closing(std::string_view text) = 0;

  // Helper for read_closing(): reads tags that mean one of `words` (or `exact` ones), and unmatched
  // brackets and separators.
  [[nodiscard]] static Closing read_loose_closing(std::string_view text,
                                                  std::span<const std::string_view> exact,
                                                  std::span<const std::string_view> words,
                                                  bool needs_slash = true);

  void emit_arguments(std::string_view json, AnswerDeltas& out);

  // Ends the arguments with a separate last delta.
  void emit_last_arguments(std::string_view json, AnswerDeltas& out);

  // For arguments of this tool: returns the parameter that a written key means.
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
    kBareMark,  // a mark without its first bracket
    kLine,
    kFence,
    kWrapper,  // a foreign tag that may be around calls
    kStray,
    kStop
  };

  // A position at which something may begin; kNothing at the text's end.
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
  std::vector<std::string_view> special_strays_;  // stray marks that are special tokens
  std::string_view stop_;                         // the mark that stop_at() set
  bool at_stop_ = false;
  State state_ = State::kText;
  Patience patience_{kMaxHeaderBytes};
  bool at_start_ = true;     // only white space has been read so far
  char last_byte_ = '\n';    // last byte of the content
  std::string space_;        // white space that is held back
  bool long_space_ = false;  // the white space exceeded kMaxSpaceBytes and counts as text
  size_t num_calls_ = 0;
  bool blank_since_call_ = false;  // only white space has come since the last call
  bool fence_is_open_ = false;     // a code fence before the call is open
  bool in_code_ = false;           // a code fence in the text is open
  // Kind of the current call's arguments.
  ArgumentsKind kind_ = ArgumentsKind::kFormat;
  JsonArguments json_;
  std::optional<PythonArguments> python_;
  std::string call_text_;
  bool keeps_stray_ = false;  // the mark that ends a malformed call is shown as text, like the call
};

// A parser that finds no calls in content.
class NoCallParser final : public ToolCallParser {
 public:
  NoCallParser();

 private:
  CallHeader read_header(std::string_view, Place, bool, bool) const override { return {}; }

  Closing read_closing(std::string_view) override { return {}; }
};

}  // namespace heddle::parsers
