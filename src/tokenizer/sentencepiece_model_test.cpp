// SPDX-License-Identifier: Apache-2.0

#include "tokenizer/sentencepiece_model.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::tokenizer {
namespace {

using namespace std::string_literals;
using testing::golden_model;
using ::testing::HasSubstr;

// Of less than 16384 bytes.
std::string field(char number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2),
                     static_cast<char>((bytes.size() & 0x7F) | 0x80),
                     static_cast<char>(bytes.size() >> 7)} +
         bytes;
}

std::string message_of(const std::string& model) {
  return check_sentencepiece_model(model).message();
}

// A character map as in the golden model: its size, 256 units, "a", "A" and "e" with an accent.
class Charsmap : public ::testing::Test {
 protected:
  static constexpr size_t kTrieBytes = 1024;

  Charsmap() {
    const std::string model = golden_model("normalizing_sentencepiece.model");
    Fields fields(model);
    while (const auto part = fields.next()) {
      if (!part->holds_bytes(kNormalizerSpec)) continue;
      Fields spec(part->bytes);
      while (const auto setting = spec.next()) {
        if (setting->holds_bytes(kPrecompiledCharsmap)) map = setting->bytes;
      }
    }
    HEDDLE_CHECK_EQ(map.size(), sizeof(uint32_t) + kTrieBytes + 8);
  }

  [[nodiscard]] uint32_t unit(size_t i) const {
    uint32_t value = 0;
    std::memcpy(&value, map.data() + sizeof(uint32_t) * (i + 1), sizeof(value));
    return value;
  }

  void set_unit(size_t i, uint32_t value) {
    std::memcpy(map.data() + sizeof(uint32_t) * (i + 1), &value, sizeof(value));
  }

  [[nodiscard]] bool is_accepted() const { return is_accepted(map); }

  static bool is_accepted(const std::string& bytes) {
    const std::string part = field(2, bytes);
    const Status normalizer = check_sentencepiece_model(field(3, part));
    EXPECT_EQ(normalizer.ok(), check_sentencepiece_model(field(5, part)).ok());
    EXPECT_TRUE(normalizer.ok() ||
                normalizer.message().find("precompiled_charsmap") != std::string::npos);
    return normalizer.ok();
  }

  // As the library looks a text up; false when it would read outside.
  [[nodiscard]] bool stays_inside(std::string_view text) const {
    constexpr size_t kNumUnits = kTrieBytes / sizeof(uint32_t);
    const auto offset = [](uint32_t value) {
      return size_t{value >> 10} << ((value & (1u << 9)) >> 6);
    };
    size_t at = offset(unit(0));
    for (const char byte : text) {
      at ^= static_cast<unsigned char>(byte);
      if (at >= kNumUnits) return false;
      const uint32_t value = unit(at);
      if ((value & 0x800000FFu) != static_cast<unsigned char>(byte)) return true;
      at ^= offset(value);
      if ((value & (1u << 8)) == 0) continue;
      if (at >= kNumUnits) return false;
      const size_t start = unit(at) & 0x7FFFFFFFu;
      if (map.find('\0', sizeof(uint32_t) + kTrieBytes + start) == std::string::npos) return false;
    }
    return true;
  }

  std::string map;
};

TEST_F(Charsmap, IsAcceptedAsTheTrainerWritesIt) {
  EXPECT_TRUE(is_accepted());
  EXPECT_TRUE(is_accepted("")) << "no table";
  EXPECT_TRUE(stays_inside("\xEF\xBC\xA1"));
}

TEST_F(Charsmap, MayNotBeginOutside) {
  for (const uint32_t first : {0x80000000u | 0x1FFFFFu << 10, 256u << 10, 1u << 10 | 1u << 9}) {
    set_unit(0, first);
    EXPECT_FALSE(is_accepted()) << first;
    EXPECT_FALSE(stays_inside("a")) << first;
  }
}

TEST_F(Charsmap, MayNotGoInCircles) {
  const size_t start = unit(0) >> 10;
  for (const uint32_t leaf : {1u << 8, 0u}) {
    set_unit(start, 1u << 31);  // a value, for the leaf
    set_unit(start ^ 'a', 'a' | leaf | 'a' << 10);
    EXPECT_FALSE(is_accepted()) << leaf;
  }
}

// A table of "a", "aa" and so on up to `num_keys` of them, all replaced by the first of `texts`.
std::string nested_keys(int num_keys, const std::string& texts) {
  std::array<uint32_t, 256> units{};
  const auto base = [](int length) { return static_cast<size_t>(2 + 2 * length); };
  units[0] = static_cast<uint32_t>(base(0) << 10);
  for (int length = 0; length <= num_keys; ++length) units[base(length)] = 1u << 31;
  for (int length = 0; length < num_keys; ++length) {
    const size_t at = base(length) ^ 'a';  // odd, as no base is
    units[at] = static_cast<uint32_t>('a' | 1u << 8 | (at ^ base(length + 1)) << 10);
  }
  const uint32_t trie_bytes = sizeof(units);
  std::string map(sizeof(trie_bytes) + trie_bytes, '\0');
  std::memcpy(map.data(), &trie_bytes, sizeof(trie_bytes));
  std::memcpy(map.data() + sizeof(trie_bytes), units.data(), trie_bytes);
  return map + texts;
}

TEST_F(Charsmap, HasRoomFor32KeysInOneAnother) {
  EXPECT_TRUE(is_accepted(nested_keys(1, "b\0"s)));
  EXPECT_TRUE(is_accepted(nested_keys(32, "b\0"s)));
  EXPECT_FALSE(is_accepted(nested_keys(33, "b\0"s)));
}

TEST_F(Charsmap, ReplacesByShortTexts) {
  EXPECT_TRUE(is_accepted(nested_keys(1, std::string(256, 'b') + '\0')));
  EXPECT_FALSE(is_accepted(nested_keys(1, std::string(257, 'b') + '\0')));
  EXPECT_FALSE(is_accepted(nested_keys(1, "b")));
}

TEST_F(Charsmap, HasASizeAndAnEnd) {
  for (const uint32_t trie_bytes : {0u, 1u, 1020u, 1023u, 1028u, 1032u, 0xFFFFFFFFu}) {
    std::string other = map;
    std::memcpy(other.data(), &trie_bytes, sizeof(trie_bytes));
    EXPECT_FALSE(is_accepted(other)) << trie_bytes;
  }
  for (const size_t size : {1u, 4u, 5u, 1028u, 1035u}) {
    EXPECT_FALSE(is_accepted(map.substr(0, size))) << size;
  }
}

TEST_F(Charsmap, AcceptedTablesAreNeverReadOutside) {
  const std::string good = map;
  std::mt19937 random(3);
  int accepted = 0;
  int led_outside = 0;
  for (int round = 0; round < 4000; ++round) {
    map = good;
    for (int flips = 0; flips < 1 + round % 3; ++flips) {
      map[4 + random() % (map.size() - 4)] ^= static_cast<char>(1u << random() % 8);
    }
    bool inside = true;
    for (int first = 0; first < 256 && inside; ++first) {
      const std::string byte(1, static_cast<char>(first));
      for (const char* rest : {"", "\xBC\xA1", "\xA9", "a"}) inside &= stays_inside(byte + rest);
    }
    const bool is_good = is_accepted();
    EXPECT_TRUE(inside || !is_good) << "round " << round;
    accepted += is_good ? 1 : 0;
    led_outside += inside ? 0 : 1;
  }
  EXPECT_GT(accepted, 400);
  EXPECT_GT(led_outside, 100);
}

TEST(SentencePieceCheck, AcceptsModels) {
  for (const char* name : {"tiny_sentencepiece.model", "normalizing_sentencepiece.model"}) {
    const std::string model = golden_model(name);
    EXPECT_EQ(message_of(model), "") << name;
    const auto tokenizer = parse_sentencepiece(model, {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    for (size_t size = 1; size < model.size(); size += 3) {
      const auto cut = parse_sentencepiece(model.substr(0, size), {});
      EXPECT_TRUE(cut.ok() || !cut.status().message().empty()) << name << " " << size;
    }
  }
}

TEST(SentencePieceCheck, RefusesPiecesThatTheLibraryCannotTake) {
  const std::string good = field(1, field(1, "a"));
  EXPECT_EQ(message_of(good + field(1, field(1, std::string(kMaxPieceBytes, 'a')))), "");
  EXPECT_THAT(message_of(good + field(1, field(1, ""))), HasSubstr("piece 1 of the "));
  EXPECT_THAT(message_of(good + good + field(1, "")), HasSubstr("piece 2 of the "));
  EXPECT_THAT(message_of(field(1, field(1, "a") + field(1, ""))), HasSubstr("is empty"));
  EXPECT_THAT(message_of(field(1, field(1, "a\0b"s))), HasSubstr("piece 0 of the "));
  EXPECT_THAT(message_of(field(1, field(1, "a\0b"s))), HasSubstr("has a zero byte"));
  EXPECT_THAT(message_of(field(1, field(1, std::string(kMaxPieceBytes + 1, 'a')))),
              HasSubstr("has 4097 bytes, more than 4096"));
}

TEST(SentencePieceCheck, HasRoomFor64UserDefinedPiecesInOneAnother) {
  const auto pieces = [](size_t count, const std::string& type) {
    std::string model = field(1, field(1, "b") + type);
    for (size_t length = count; length > 0; --length) {
      model += field(1, field(1, std::string(length, 'a')) + type);
    }
    return model;
  };
  const std::string user_defined = "\x18\x04";
  EXPECT_EQ(message_of(pieces(64, user_defined)), "");
  EXPECT_THAT(message_of(pieces(65, user_defined)), HasSubstr("more than 64 user-defined pieces"));
  EXPECT_THAT(message_of(pieces(65, user_defined + "\x18\x7F")), HasSubstr("more than 64"))
      << "a type that the library does not know changes nothing";
  EXPECT_THAT(message_of(pieces(65, "\x18\x84\x80\x80\x80\x10")), HasSubstr("more than 64"))
      << "of a type, the library takes 32 bits";
  EXPECT_EQ(message_of(pieces(65, "\x18\x01")), "");
}

TEST(SentencePieceCheck, RefusesMalformedMessages) {
  const std::string good = field(1, field(1, "a"));
  for (const std::string& bad : {good + "\x0B", good + std::string(11, '\xFF'),
                                 field(1, "\x0A\x05"), field(3, "\x12\x7F")}) {
    EXPECT_THAT(message_of(bad), HasSubstr("not a SentencePiece model: its fields do not add up"));
  }
  // The library cuts a field's number off at 32 bits: this one is a piece, too.
  EXPECT_THAT(message_of("\x8A\x80\x80\x80\x10\x02\x0A\x00"s), HasSubstr("piece 0 of the "));
}

using namespace std::string_literals;

// A model with one piece and `spec` as its normalizer_spec.
std::string model_with(const std::string& spec) {
  return "\x0A\x03\x0A\x01z"s + "\x1A" + static_cast<char>(spec.size()) + spec;
}

const std::string kKeepsWhiteSpace = "\x20\x00"s;  // remove_extra_whitespaces: false

TEST(SentencePieceNormalizer, KeepsTextOnlyWhereNothingIsReplacedOrRemoved) {
  EXPECT_TRUE(normalizer_keeps_text(model_with(kKeepsWhiteSpace)));
  EXPECT_TRUE(normalizer_keeps_text(model_with("\x0A\x01i\x12\x00\x18\x01"s + kKeepsWhiteSpace)));
  EXPECT_TRUE(normalizer_keeps_text(model_with("\x9D\x06\x01\x02\x03\x04"s + kKeepsWhiteSpace)))
      << "an extension of four bytes";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x12\x01m"s + kKeepsWhiteSpace))) << "replaces";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x28\x00"s + kKeepsWhiteSpace))) << "unmarked";
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x20\x01"s))) << "removes";
  EXPECT_FALSE(normalizer_keeps_text(model_with(""))) << "removes by default";
  EXPECT_FALSE(normalizer_keeps_text(""));
}

TEST(SentencePieceNormalizer, AMalformedModelMayLoseText) {
  const std::string good = model_with(kKeepsWhiteSpace);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(normalizer_keeps_text(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(normalizer_keeps_text(good + "\x0B")) << "a group";
  EXPECT_FALSE(normalizer_keeps_text(good + std::string(11, '\xFF'))) << "an endless number";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x12\x7F"))) << "too short";
  // The library takes a field of another type for one that it does not know.
  EXPECT_FALSE(normalizer_keeps_text(model_with("\x22\x00"s))) << "remove_extra_whitespaces";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x2A\x01\x01"))) << "escape";
  EXPECT_FALSE(normalizer_keeps_text(model_with(kKeepsWhiteSpace + "\x10\x00"s))) << "charsmap";
  EXPECT_FALSE(normalizer_keeps_text("\x18\x00"s)) << "normalizer_spec";
}

TEST(SentencePieceNormalizer, ReadsTheTypeOfAModel) {
  EXPECT_TRUE(is_bpe_model("\x12\x02\x18\x02"s));
  EXPECT_FALSE(is_bpe_model("\x12\x02\x18\x01"s)) << "unigram";
  EXPECT_FALSE(is_bpe_model("\x12\x04\x18\x02\x18\x01"s)) << "the last one counts";
  EXPECT_FALSE(is_bpe_model("\x12\x03\x1A\x01\x02"s)) << "of another wire type";
  EXPECT_FALSE(is_bpe_model("\x12\x02\x18"s)) << "cut off";
  EXPECT_FALSE(is_bpe_model("")) << "unigram by default";
}

}  // namespace

}  // namespace heddle::tokenizer
