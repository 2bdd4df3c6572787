// SPDX-License-Identifier: Apache-2.0
// ToolCallParser finds tool calls in an answer's content. This class knows what all formats share:
// text before and between calls, marks that may begin a call, white space that a call swallows,
// numbers and ids. A format says what its calls look like inside.
//
// Text that looks like a call at first is held back until it is certain: at most kMaxHeaderBytes,
// white space at most kMaxSpaceBytes. Text that proves to be no call is content. Text between and
// after calls is content unless it is blank.
//
// Threading: thread-compatible.
// Cost:      O(text), and O(header^2) for a call's beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_delta.h"
#include "parsers/marker_search.h"
#include "parsers/unread_text.h"

namespace heddle::parsers {

// The places where a call may begin.
enum class Place {
  kMarker,  // at one of the format's marks
  kStart,   // at the very beginning of the content
  kNext,    // right after another call
};

// The beginning of a call, up to its arguments.
struct CallHeader {
  Match match = Match::kNo;
  size_t size = 0;  // of it
  std::string name = {};
  std::string id = {};  // what the model calls it by; empty: it gets one
  // All of the arguments, a JSON object, where they came before the name: the call is complete.
  std::optional<std::string> arguments = {};
};

struct ToolCallParserOptions {
  // The id of a call that the model gives none.
  std::function<std::string(std::string_view name, size_t index)> make_id;
  bool parallel = true;         // false: calls after the first are dropped
  bool keep_call_text = false;  // see ToolCallEnd
};

class ToolCallParser {
 public:
  static constexpr size_t kMaxHeaderBytes = 16 << 10;
  static constexpr size_t kMaxSpaceBytes = 4 << 10;
  static constexpr size_t kMaxNameBytes = 256;

  virtual ~ToolCallParser() = default;

  void push(std::string_view text, AnswerDeltas& out);

  // The text has ended. Once.
  void finish(AnswerDeltas& out);

  // The marks that may begin a call anywhere.
  [[nodiscard]] const std::vector<std::string_view>& markers() const { return markers_; }

  // Whether `text`, which begins with a mark, begins a call.
  [[nodiscard]] CallHeader read_marked_header(std::string_view text) const;

 protected:
  ToolCallParser(std::vector<std::string_view> markers, bool may_start_unmarked,
                 ToolCallParserOptions options);

  // Whether `text` begins a call, as far as it goes. Changes nothing.
  [[nodiscard]] virtual CallHeader read_header(std::string_view text, Place place) const = 0;

  // A call begins, of which `header` was read off `text`.
  virtual void begin_call(const CallHeader& header, std::string_view text) = 0;

  enum class Progress : uint8_t { kMore, kDone, kFailed };

  // Reads arguments off the front of `text`, `used` bytes of it, and emits them. kMore: it takes
  // more text to go on, unless something was used. kFailed: they are malformed; what was emitted is
  // an incomplete call, what was not used is content.
  virtual Progress read_arguments(std::string_view text, size_t& used, AnswerDeltas& out) = 0;

  // Closing marks, which follow a call and belong to it. `kMore` if it takes more text to tell,
  // `kYes` with the size for some of it, `kNo` when there is nothing left of it.
  struct Closing {
    Match match = Match::kNo;
    size_t size = 0;
  };

  [[nodiscard]] virtual Closing read_closing(std::string_view text) = 0;

  void emit_arguments(std::string_view json, AnswerDeltas& out);

  // Ends the arguments; a delta of its own, which says that nothing else will come.
  void emit_last_arguments(std::string_view json, AnswerDeltas& out);

 private:
  enum class State : uint8_t { kText, kCall, kAfterCall };

  void run(bool at_end, AnswerDeltas& out);
  size_t step(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_text(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_start(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_after_call(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_call(std::string_view text, AnswerDeltas& out);
  size_t start_call(CallHeader header, std::string_view text, AnswerDeltas& out);
  void end_call(bool complete, AnswerDeltas& out);
  [[nodiscard]] CallHeader header_at(std::string_view text, Place place) const;
  void emit_text(std::string_view text, AnswerDeltas& out);

  [[nodiscard]] bool dropped() const { return !options_.parallel && num_calls_ > 1; }

  const std::vector<std::string_view> markers_;
  const ToolCallParserOptions options_;
  State state_ = State::kText;
  UnreadText unread_;
  bool at_start_;            // a call may begin without a mark
  std::string space_;        // held back
  bool long_space_ = false;  // it grew too long and is text
  size_t num_calls_ = 0;
  bool blank_since_call_ = false;  // nothing but white space has come since a call
  std::string call_text_;
};

}  // namespace heddle::parsers
