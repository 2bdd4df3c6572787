// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "core/printable.h"
#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

namespace {

constexpr size_t kMinTokenSlots = 64;
constexpr uint32_t kIdBits = 22;
constexpr uint32_t kIdMask = (1u << kIdBits) - 1;
// differs from every slot, because no id exceeds kMaxTokenId
constexpr uint32_t kEmptySlot = ~0u;
constexpr size_t kMaxTokenBytes = (size_t{1} << 30) - 1;  // the largest value of Entry::length

// Combines the upper bits of the hash with the id; the lower bits select the slot.
uint32_t slot_of(uint64_t hash, uint32_t id) {
  return static_cast<uint32_t>(hash >> (64 - 10)) << kIdBits | id;
}

bool is_full(size_t num_used, size_t num_slots) { return num_used * 5 > num_slots * 3; }

}  // namespace

std::string shown_token(std::string_view text) { return printable(text, 80); }

void Vocabulary::reserve(size_t num_tokens, size_t num_bytes) {
  num_tokens = std::min(num_tokens, size_t{kMaxTokenId} + 1);
  bytes_.reserve(num_bytes);
  entries_.reserve(num_tokens);
  size_t num_slots = std::bit_ceil(num_tokens);
  if (is_full(num_tokens, num_slots)) num_slots *= 2;
  grow_slots(num_slots);
}

Status Vocabulary::add_entry(std::string_view text, int64_t id, Kind kind) {
  if (id < 0 || id > kMaxTokenId) {
    return data_loss(fmt::format("token '{}' has the id {}, outside 0 to {}", shown_token(text), id,
                                 kMaxTokenId));
  }
  if (text.size() > kMaxTokenBytes ||
      bytes_.size() + text.size() > std::numeric_limits<uint32_t>::max()) {
    return data_loss(fmt::format("the token texts are longer than 4 GiB at id {}", id));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  if (entry.kind != Kind::kAbsent) {
    return data_loss(fmt::format("two tokens have the id {}: '{}' and '{}'", id,
                                 shown_token(this->text(static_cast<TokenId>(id))),
                                 shown_token(text)));
  }
  entry.offset = static_cast<uint32_t>(bytes_.size());
  entry.length = static_cast<uint32_t>(text.size()) & kMaxTokenBytes;
  entry.kind = kind;
  bytes_.append(text);
  ++num_tokens_;
  return ok_status();
}

Status Vocabulary::insert(std::string_view text, int64_t id) {
  if (is_full(num_hashed_ + 1, slots_.size())) grow_slots(slots_.size() * 2);
  const uint64_t hash = hash_bytes(text);
  const size_t index = find_slot(hash, text);
  if (slots_[index] != kEmptySlot) {
    return data_loss(fmt::format("token '{}' has two ids, {} and {}", shown_token(text),
                                 slots_[index] & kIdMask, id));
  }
  HEDDLE_RETURN_IF_ERROR(add_entry(text, id, Kind::kMerged));
  slots_[index] = slot_of(hash, static_cast<uint32_t>(id));
  ++num_hashed_;
  return ok_status();
}

Status Vocabulary::insert_literal(std::string_view text, int64_t id) {
  if (const auto other = find_literal(text)) {
    return data_loss(
        fmt::format("token '{}' has two ids, {} and {}", shown_token(text), *other, id));
  }
  HEDDLE_RETURN_IF_ERROR(add_entry(text, id, Kind::kLiteral));
  literals_.emplace(text, static_cast<TokenId>(id));
  return ok_status();
}

// The slot of `text`, or the empty slot in which to insert it.
size_t Vocabulary::find_slot(uint64_t hash, std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t index = hash & mask;
  for (; slots_[index] != kEmptySlot; index = (index + 1) & mask) {
    const uint32_t id = slots_[index] & kIdMask;
    if (slots_[index] == slot_of(hash, id) && text_unchecked(id) == text) break;
  }
  return index;
}

void Vocabulary::grow_slots(size_t num_slots) {
  if (num_slots < kMinTokenSlots) num_slots = kMinTokenSlots;
  if (num_slots <= slots_.size()) return;
  slots_.assign(num_slots, kEmptySlot);
  for (uint32_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].kind != Kind::kMerged) continue;
    const uint64_t hash = hash_bytes(text_unchecked(id));
    slots_[find_slot(hash, text_unchecked(id))] = slot_of(hash, id);
  }
}

TokenId Vocabulary::find_or_negative(std::string_view text) const {
  if (slots_.empty()) return -1;
  const Slot slot = slots_[find_slot(hash_bytes(text), text)];
  return slot == kEmptySlot ? -1 : static_cast<TokenId>(slot & kIdMask);
}

std::optional<TokenId> Vocabulary::find_literal(std::string_view text) const {
  const auto found = literals_.find(std::string(text));
  return found == literals_.end() ? std::nullopt : std::optional<TokenId>(found->second);
}

namespace {

constexpr int kNumBytes = 256;
constexpr int kNumCodePoints = 256 + 68;

struct Alphabet {
  std::array<char16_t, kNumBytes> code_point_of_byte{};
  std::array<int16_t, kNumCodePoints> byte_of_code_point{};  // -1: not in the alphabet
};

constexpr bool spells_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of_code_point.fill(-1);
  int next = kNumBytes;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    const int code_point = spells_itself(byte) ? byte : next++;
    alphabet.code_point_of_byte[static_cast<size_t>(byte)] = static_cast<char16_t>(code_point);
    alphabet.byte_of_code_point[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool append_bytes_of_spelling(std::string_view spelling, std::string& bytes) {
  const size_t start = bytes.size();
  bytes.append(spelling);  // reserves space, and most bytes are already right
  char* out = bytes.data() + start;
  for (size_t i = 0; i < spelling.size(); ++i) {
    size_t code_point = static_cast<unsigned char>(spelling[i]);
    if (code_point >= 0x80) {
      // All other characters of the alphabet have two bytes.
      const auto second =
          i + 1 < spelling.size() ? static_cast<unsigned char>(spelling[i + 1]) : 0u;
      const bool is_pair = (code_point & 0xE0) == 0xC0 && (second & 0xC0) == 0x80;
      code_point = is_pair ? (code_point & 0x1F) << 6 | (second & 0x3F) : kNumCodePoints;
      ++i;
    }
    if (code_point >= kNumCodePoints || kAlphabet.byte_of_code_point[code_point] < 0) {
      bytes.resize(start);
      return false;
    }
    *out++ = static_cast<char>(kAlphabet.byte_of_code_point[code_point]);
  }
  bytes.resize(static_cast<size_t>(out - bytes.data()));
  return true;
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_utf8(kAlphabet.code_point_of_byte[static_cast<unsigned char>(byte)], spelling);
  }
  return spelling;
}

}  // namespace heddle::tokenizer
