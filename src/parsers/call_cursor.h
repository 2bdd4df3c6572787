// SPDX-License-Identifier: Apache-2.0
// CallCursor parses the beginning of a call at the front of a text that may continue. After a read
// has failed, failure() says whether more text could help; all later reads fail, too.
//
// Threading: thread-compatible. The text must outlive the cursor.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/call_header.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {

class CallCursor {
 public:
  static constexpr size_t kMaxSpaceBeforeObject = 64;

  explicit CallCursor(std::string_view text) : text_(text) {}

  [[nodiscard]] size_t position() const { return position_; }

  [[nodiscard]] std::string_view rest() const { return text_.substr(position_); }

  [[nodiscard]] CallHeader failure() const { return {.match = failure_}; }

  bool fail(Match failure = Match::kNo) {
    failure_ = failure;
    return false;
  }

  void advance(size_t size) { position_ += size; }

  // Skips white space. Fails unless at least one other byte follows.
  bool skip_space(size_t most = kMaxHeaderBytes);

  bool expect(std::string_view wanted);

  // Consumes `wanted` if it is present. Returns false if more text is needed to decide.
  bool allow(std::string_view wanted);

  // Reads a string in single or double quotes; `value` is its unescaped text.
  bool read_string(std::string& value);

  [[nodiscard]] bool at_string() const {
    return rest().starts_with('"') || rest().starts_with('\'');
  }

  // Skips tags that mean one of `words`, and white space around them. Sets a bit in `found` for
  // each word that was present. Skips at most three tags of one word.
  bool skip_tags(std::span<const std::string_view> words, unsigned& found);

  // Skips a code fence such as "```json" and the space after it; `info` is the word after the
  // backticks. Does nothing if there is no fence.
  bool skip_fence(std::string_view& info);

  // Reads a JSON object and stores its text in `copy`.
  bool read_object(std::string& copy);

  // Reads a list of JSON objects and stores their texts. Objects that share no key are joined to
  // one; an empty list gives one empty object.
  bool read_listed_objects(std::vector<std::string>& copies);

  // If `name` ends with `tag` without its first bracket, removes it.
  static bool strip_bare_tag(std::string_view& name, std::string_view tag);

  // Reads up to one of the characters `stops`, without consuming it.
  bool read_until(std::string_view stops, std::string_view& value);

 private:
  std::string_view text_;
  size_t position_ = 0;
  Match failure_ = Match::kMore;
};

// The header of a call that ends at the cursor, where arguments may follow or be absent.
[[nodiscard]] CallHeader header_of(const CallCursor& cursor, std::string name, std::string id = {});
[[nodiscard]] CallHeader bare_header(const CallCursor& cursor, std::string name,
                                     std::string id = {});

}  // namespace heddle::parsers
