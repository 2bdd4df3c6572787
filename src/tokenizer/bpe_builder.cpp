// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_builder.h"

#include <utility>

#include <fmt/format.h>

#include "tokenizer/byte_alphabet.h"

namespace heddle::tokenizer {
namespace {

Status missing_token(std::string_view left, std::string_view right, std::string_view token) {
  return data_loss(
      fmt::format("the merge '{}' '{}' needs the token '{}', which is not in the vocabulary", left,
                  right, token));
}

}  // namespace

void BpeBuilder::reserve_tokens(size_t num_tokens, size_t num_bytes) {
  vocabulary_.reserve(num_tokens, num_bytes);
}

void BpeBuilder::reserve_merges(size_t num_merges) { merges_.reserve(num_merges); }

Status BpeBuilder::add_token(std::string_view spelling, int64_t id) {
  if (!byte_level_) return vocabulary_.insert(spelling, id);
  merged_bytes_.clear();
  if (append_bytes_of_spelling(spelling, merged_bytes_))
    return vocabulary_.insert(merged_bytes_, id);
  return vocabulary_.insert_literal(spelling, id);
}

Status BpeBuilder::add_merge_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return data_loss(fmt::format("the merge '{}' is not two tokens with a space between", line));
  }
  return add_merge(line.substr(0, space), line.substr(space + 1));
}

TokenId BpeBuilder::find_merged(std::string_view left, std::string_view right) {
  for (const TokenId guess : {last_merged_ + 1, last_merged_}) {
    const std::string_view text = vocabulary_.text(guess);
    if (text.size() == left.size() + right.size() && text.starts_with(left) &&
        text.ends_with(right) && !vocabulary_.is_literal(guess)) {
      return guess;
    }
  }
  merged_bytes_.assign(left).append(right);
  return vocabulary_.find_or_negative(merged_bytes_);
}

Status BpeBuilder::add_merge(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) {
    return data_loss(fmt::format("the merge '{}' '{}' has an empty side", left, right));
  }
  if (next_rank_ == Merge::kNone - 1) return data_loss("there are more than 2^32 - 2 merges");
  std::string_view left_text = left;
  std::string_view right_text = right;
  if (byte_level_) {
    left_bytes_.clear();
    right_bytes_.clear();
    if (!append_bytes_of_spelling(left, left_bytes_) ||
        !append_bytes_of_spelling(right, right_bytes_)) {
      return add_literal_merge(left, right);
    }
    left_text = left_bytes_;
    right_text = right_bytes_;
  }
  const TokenId left_id = vocabulary_.find_or_negative(left_text);
  if (left_id < 0) return missing_token(left, right, left);
  const TokenId right_id = vocabulary_.find_or_negative(right_text);
  if (right_id < 0) return missing_token(left, right, right);
  const TokenId merged_id = find_merged(left_text, right_text);
  if (merged_id < 0) return missing_token(left, right, fmt::format("{}{}", left, right));
  merges_.push_back(
      {.left = left_id, .right = right_id, .merge = {.rank = next_rank_++, .merged = merged_id}});
  last_merged_ = merged_id;
  return ok_status();
}

std::optional<TokenId> BpeBuilder::find_spelling(std::string_view spelling) const {
  if (!byte_level_) return vocabulary_.find(spelling);
  std::string bytes;
  if (!append_bytes_of_spelling(spelling, bytes)) return vocabulary_.find_literal(spelling);
  return vocabulary_.find(bytes);
}

// No text leads to these, since its bytes are all of the alphabet: checked and left out.
Status BpeBuilder::add_literal_merge(std::string_view left, std::string_view right) {
  const std::string merged = fmt::format("{}{}", left, right);
  for (const std::string_view token : {left, right, std::string_view(merged)}) {
    if (!find_spelling(token)) return missing_token(left, right, token);
  }
  ++next_rank_;
  return ok_status();
}

BpeModel BpeBuilder::build(BpeSettings settings) && {
  settings.byte_level = byte_level_;
  return BpeModel(std::move(vocabulary_), MergeTable(merges_), settings);
}

}  // namespace heddle::tokenizer
