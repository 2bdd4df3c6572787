// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, BpeSettings settings)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), settings_(settings) {
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const std::string text = settings_.byte_level ? std::string(1, static_cast<char>(byte))
                                                  : fmt::format("<0x{:02X}>", byte);
    byte_tokens_[byte] = vocabulary_.find_or_negative(text);
  }
  set_bound();
}

// If an unknown byte may produce no token, there is no bound. The spelling of a byte-fallback token
// is longer than its byte.
void BpeModel::set_bound() {
  const bool knows_every_byte =
      (settings_.byte_level || settings_.byte_fallback) &&
      std::ranges::all_of(byte_tokens_, [](TokenId id) { return id >= 0; });
  if (!knows_every_byte) return;
  for (int64_t id = 0; id < vocabulary_.end_id(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (!vocabulary_.is_literal(token)) bound_.add(vocabulary_.text(token));
  }
  if (settings_.byte_level) {
    bound_.finish();
  } else {
    bound_.finish_for_any_bytes();
  }
}

bool BpeModel::encode(std::string_view piece, BpeScratch& scratch, CancellationPoll& poll,
                      std::vector<TokenId>& ids) const {
  if (piece.empty()) return true;
  if (piece.size() > WordCache::kMaxWordBytes) return append_ids(piece, scratch.merge, poll, ids);
  const uint64_t hash = hash_bytes(piece);
  const std::span<const TokenId> known = scratch.cache->find(piece, hash);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return true;
  }
  const size_t start = ids.size();
  if (!append_ids(piece, scratch.merge, poll, ids)) return false;
  if (ids.size() > start) scratch.cache->insert(piece, hash, std::span(ids).subspan(start));
  return true;
}

bool BpeModel::append_ids(std::string_view piece, MergeScratch& scratch, CancellationPoll& poll,
                          std::vector<TokenId>& ids) const {
  if (settings_.ignore_merges) {
    if (const TokenId whole = vocabulary_.find_or_negative(piece); whole >= 0) {
      ids.push_back(whole);
      return true;
    }
  }
  scratch.symbols.clear();
  if (settings_.byte_level) {
    set_byte_symbols(piece, scratch.symbols);
  } else {
    set_character_symbols(piece, scratch.symbols);
  }
  if (!merge_symbols(merges_, scratch, poll)) return false;
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
  return true;
}

void BpeModel::set_byte_symbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  bool unknown = false;
  for (const char byte : piece) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id >= 0) symbols.push_back(id);
    unknown = id < 0 && append_unknown(unknown, symbols);
  }
}

void BpeModel::set_character_symbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  bool unknown = false;
  for (size_t i = 0; i < piece.size();) {
    const std::string_view character = piece.substr(i, utf8_length(piece[i]));
    i += character.size();
    const TokenId id = vocabulary_.find_or_negative(character);
    if (id >= 0) symbols.push_back(id);
    unknown = id < 0 && !append_byte_tokens(character, symbols) && append_unknown(unknown, symbols);
  }
}

bool BpeModel::append_byte_tokens(std::string_view character, std::vector<TokenId>& symbols) const {
  if (!settings_.byte_fallback) return false;
  const auto token_of = [this](char byte) {
    return byte_tokens_[static_cast<unsigned char>(byte)];
  };
  if (std::ranges::any_of(character, [&](char byte) { return token_of(byte) < 0; })) return false;
  for (const char byte : character) symbols.push_back(token_of(byte));
  return true;
}

// Appends the symbols of an unknown character. Returns true if it was unknown, whether or not it
// got a token.
bool BpeModel::append_unknown(bool previous_unknown, std::vector<TokenId>& symbols) const {
  if (!settings_.unknown) return true;  // the model has no unknown token: the character is omitted
  if (!previous_unknown || !settings_.fuse_unknown) symbols.push_back(*settings_.unknown);
  return true;
}

std::string BpeModel::spelling(TokenId id) const {
  const std::string_view text = vocabulary_.text(id);
  const bool is_spelled = settings_.byte_level && !vocabulary_.is_literal(id);
  return is_spelled ? spell_bytes(text) : std::string(text);
}

std::optional<TokenId> BpeModel::find_spelling(std::string_view spelling) const {
  if (!settings_.byte_level) return vocabulary_.find(spelling);
  std::string bytes;
  if (!append_bytes_of_spelling(spelling, bytes)) return vocabulary_.find_literal(spelling);
  return vocabulary_.find(bytes);
}

std::optional<char> BpeModel::byte_of_token(TokenId id) const {
  const auto found = std::ranges::find(byte_tokens_, id);
  if (id < 0 || found == byte_tokens_.end()) return std::nullopt;
  return static_cast<char>(found - byte_tokens_.begin());
}

namespace {

Status missing_token(std::string_view left, std::string_view right, std::string_view token) {
  return data_loss(
      fmt::format("the merge '{}' '{}' needs the token '{}', which is not in the vocabulary",
                  shown_token(left), shown_token(right), shown_token(token)));
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

Status BpeBuilder::add_bytes(std::string_view bytes, int64_t id) {
  return vocabulary_.insert(bytes, id);
}

Status BpeBuilder::add_ranked_merges() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    if (vocabulary_.find_or_negative(text) >= 0) continue;
    return data_loss(fmt::format("the byte 0x{:02X} is not a token", byte));
  }
  const auto num_tokens = static_cast<TokenId>(vocabulary_.end_id());
  merges_.reserve(static_cast<size_t>(num_tokens) * 3);
  for (TokenId id = 0; id < num_tokens; ++id) {
    if (!vocabulary_.contains(id)) {
      return data_loss(
          fmt::format("no token has the rank {}, though ranks go to {}", id, num_tokens - 1));
    }
    const std::string_view text = vocabulary_.text(id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const TokenId left = vocabulary_.find_or_negative(text.substr(0, cut));
      if (left < 0) continue;
      const TokenId right = vocabulary_.find_or_negative(text.substr(cut));
      if (right < 0) continue;
      merges_.push_back({.left = left,
                         .right = right,
                         .merge = {.rank = static_cast<uint32_t>(id), .merged = id}});
    }
  }
  return ok_status();
}

Status BpeBuilder::add_merge_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return data_loss(
        fmt::format("the merge '{}' is not two tokens with a space between", shown_token(line)));
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
    return data_loss(fmt::format("the merge '{}' '{}' has an empty side", shown_token(left),
                                 shown_token(right)));
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

// Checks and ignores a merge of literal tokens: no text leads to them, because the bytes of every
// text are in the alphabet.
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

namespace {

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  if (pattern.empty()) return;
  for (size_t at = text.find(pattern); at != std::string::npos;
       at = text.find(pattern, at + content.size())) {
    text.replace(at, pattern.size(), content);
  }
}

}  // namespace

void TokenDecoder::append_bytes(const BpeModel& model, TokenId id, std::string& out) const {
  if (byte_fallback) {
    if (const std::optional<char> byte = model.byte_of_token(id)) {
      out.push_back(*byte);
      return;
    }
  }
  const std::string_view token = model.vocabulary().text(id);
  if (replacements.empty()) {
    out.append(token);
    return;
  }
  std::string text(token);
  for (const auto& [pattern, content] : replacements) replace_all(text, pattern, content);
  out.append(text);
}

}  // namespace heddle::tokenizer
