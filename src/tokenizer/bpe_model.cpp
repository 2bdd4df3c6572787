// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"

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

// Where a byte is not known it may cost nothing: there is no bound. A fallback token is written
// with more bytes than the one it stands for.
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

// True when the symbol was unknown, whether or not it got a token.
bool BpeModel::append_unknown(bool previous_unknown, std::vector<TokenId>& symbols) const {
  if (!settings_.unknown) return true;  // nothing stands for it: it is left out
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

}  // namespace heddle::tokenizer
