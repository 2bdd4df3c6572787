// SPDX-License-Identifier: Apache-2.0
// CallCursor reads the beginning of a call at the front of a text that goes on. A read that fails
// says by failure() whether more text could help; all later ones fail, too.
//
// Threading: thread-compatible. The text outlives the cursor.
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

  // White space, and at least one byte after it.
  bool skip_space(size_t most = kMaxHeaderBytes);

  bool expect(std::string_view wanted);

  // Consumes `wanted` if present. False if more text is needed to decide.
  bool allow(std::string_view wanted);

  // Reads a string in single or double quotes; `value` is its unescaped text.
  bool read_string(std::string& value);

  [[nodiscard]] bool at_string() const {
    return rest().starts_with('"') || rest().starts_with('\'');
  }

  // Tags that mean one of `words`, with white space around them. `found` has a bit for each word
  // that was there. Of one word no more than three.
  bool skip_tags(std::span<const std::string_view> words, unsigned& found);

  // Skips "```json" and the like, with the space after it; `info` is the fence's word. Does nothing
  // without a fence.
  bool skip_fence(std::string_view& info);

  // A JSON object, copied to `copy`.
  bool read_object(std::string& copy);

  // A list of JSON objects, which are copied; of those without a common key one is made, as of
  // none.
  bool read_listed_objects(std::vector<std::string>& copies);

  // Removes `tag` from the end of `name` where it stands there without its first bracket.
  static bool strip_bare_tag(std::string_view& name, std::string_view tag);

  // Up to, not including, one of `stops`.
  bool read_until(std::string_view stops, std::string_view& value);

 private:
  std::string_view text_;
  size_t position_ = 0;
  Match failure_ = Match::kMore;
};

// The header that ends at the cursor, of a call that has arguments or of one that has none.
[[nodiscard]] CallHeader header_of(const CallCursor& cursor, std::string name, std::string id = {});
[[nodiscard]] CallHeader bare_header(const CallCursor& cursor, std::string name,
                                     std::string id = {});

}  // namespace heddle::parsers
