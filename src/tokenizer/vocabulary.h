// SPDX-License-Identifier: Apache-2.0
// Vocabulary maps token texts to ids and ids to texts. The byte alphabet, in which files spell
// byte-level tokens, is at the end of this file.
//
// A text is what the merges work on: plain bytes for byte-level BPE, UTF-8 otherwise. A literal
// token has a text but is never the result of a merge, because its spelling contains characters
// outside the byte alphabet, as that of many special tokens does.
//
// Threading: built by one thread, then immutable and thread-safe.
// Invariants: a text has one id and an id has one text.
// Cost: find() is one hash and, nearly always, one comparison. A slot has 4 bytes and loads stay
// below 3/5, so that the slots of 150 thousand tokens fit a core's second-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::tokenizer {

// The largest id. No published vocabulary has more than about 300 thousand ids; the limit prevents
// a corrupt file from allocating gigabytes.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 2;

// The text of a token, or a line of its file, for messages: printable and at most 80 bytes.
[[nodiscard]] std::string shown_token(std::string_view text);

class Vocabulary {
 public:
  // Reserves memory for `num_tokens` tokens, at most as many as there are ids, with `num_bytes`
  // bytes in total. Both numbers come from a file in memory, so its size bounds them.
  void reserve(size_t num_tokens, size_t num_bytes);

  // Adds a token. Error: kDataLoss if the id is out of range or used, or if the text already has
  // another id.
  Status insert(std::string_view text, int64_t id);
  Status insert_literal(std::string_view text, int64_t id);

  [[nodiscard]] std::optional<TokenId> find(std::string_view text) const {
    const TokenId id = find_or_negative(text);
    return id < 0 ? std::nullopt : std::optional<TokenId>(id);
  }

  [[nodiscard]] TokenId find_or_negative(std::string_view text) const;
  [[nodiscard]] std::optional<TokenId> find_literal(std::string_view text) const;

  // The text of a token; empty if the vocabulary does not have the id.
  [[nodiscard]] std::string_view text(TokenId id) const {
    return contains(id) ? text_unchecked(static_cast<uint32_t>(id)) : std::string_view();
  }

  [[nodiscard]] bool contains(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() &&
           entries_[static_cast<size_t>(id)].kind != Kind::kAbsent;
  }

  [[nodiscard]] bool is_literal(TokenId id) const {
    return contains(id) && entries_[static_cast<size_t>(id)].kind == Kind::kLiteral;
  }

  // The largest id plus one.
  [[nodiscard]] int64_t end_id() const { return static_cast<int64_t>(entries_.size()); }

  [[nodiscard]] int64_t num_tokens() const { return static_cast<int64_t>(num_tokens_); }

 private:
  enum class Kind : uint32_t { kAbsent, kMerged, kLiteral };

  struct Entry {
    uint32_t offset = 0;
    uint32_t length : 30 = 0;
    Kind kind : 2 = Kind::kAbsent;
  };

  // (ten bits of the hash) << 22 | id, or kEmptySlot.
  using Slot = uint32_t;

  Status add_entry(std::string_view text, int64_t id, Kind kind);
  [[nodiscard]] size_t find_slot(uint64_t hash, std::string_view text) const;

  [[nodiscard]] std::string_view text_unchecked(uint32_t id) const {
    return {bytes_.data() + entries_[id].offset, entries_[id].length};
  }

  void grow_slots(size_t num_slots);

  std::string bytes_;
  std::vector<Entry> entries_;  // texts of the tokens, indexed by id
  std::vector<Slot> slots_;     // open addressing; the size is a power of two
  size_t num_tokens_ = 0;
  size_t num_hashed_ = 0;
  std::unordered_map<std::string, TokenId> literals_;
};

// The byte alphabet of byte-level BPE: vocabulary files spell each byte as one printable character,
// so that "\nHi" is written "ĊHi". Heddle keeps tokens as plain bytes and uses the alphabet only to
// read files and to show tokens as they are written there.
//
// Bytes 33-126, 161-172 and 174-255 are spelled as the code point with the same number; the other
// 68 are spelled as the code points from 256 on, in byte order. Radford et al., "Language Models
// are Unsupervised Multitask Learners", 2019 (section 2.2 for the idea of byte-level BPE).
//
// Converts a spelling to bytes and appends them to `bytes`. If a character is not in the alphabet,
// returns false and appends nothing: such a token is literal text (many special tokens are).
[[nodiscard]] bool append_bytes_of_spelling(std::string_view spelling, std::string& bytes);

// The spelling of any bytes; the inverse of append_bytes_of_spelling().
[[nodiscard]] std::string spell_bytes(std::string_view bytes);

}  // namespace heddle::tokenizer
