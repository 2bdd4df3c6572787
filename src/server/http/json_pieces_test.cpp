// SPDX-License-Identifier: Apache-2.0
#include "server/http/json_pieces.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::server {

using Json = nlohmann::ordered_json;

namespace {

std::string as_the_library(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string string_of(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

TEST(JsonPiecesTest, StringsAreWhatTheLibraryWrites) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = std::string("a") + static_cast<char>(byte) + "b";
    EXPECT_EQ(string_of(text), as_the_library(text)) << byte;
  }
  std::mt19937 random(5);
  const std::string_view parts[] = {
      "a",        "\"",           "\\",       "\n",   "\x01",
      "\xc3\xa9", "\xe2\x82\xac", "\xe2\x82", "\xf0", "\xf0\x9f\x98\x80"};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    while (random() % 8 != 0) text += parts[random() % std::size(parts)];
    ASSERT_EQ(string_of(text), as_the_library(text)) << i;
  }
}

TEST(JsonPiecesTest, NumbersReadAsWhatTheyWere) {
  std::mt19937 random(6);
  std::vector<double> numbers = {0, -0.0, 1, -9999, 0.1, 1e-5, 123456, -1e-9, 3.25e-7};
  while (numbers.size() < 20000) {
    const auto bits = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(bits) && std::abs(bits) < 1e14f) numbers.push_back(static_cast<double>(bits));
  }
  for (const double number : numbers) {
    std::string out;
    append_json_number(number, out);
    const Json read = Json::parse(out);
    ASSERT_TRUE(read.is_number_float()) << out;
    ASSERT_EQ(read.get<double>(), number) << out;
    ASSERT_LE(out.size(), Json(number).dump().size()) << out;
  }
}

// An object with everything in it, and the same as a tree.
struct Example {
  std::string text;
  std::vector<int32_t> ids;
  std::string ready = R"("ready":[1])";

  [[nodiscard]] JsonPieces pieces() const {
    JsonPieces json;
    json.begin_object().key("n").value(1).key("text").text(text).key("empty").text("");
    json.key("ids").integers(ids).key("none").integers({});
    json.key("lists").begin_list();
    for (int i = 0; i < 2; ++i) {
      json.list(ids.size(), [i](size_t index, std::string& out) {
        out += '"' + std::to_string(index + static_cast<size_t>(i)) + '"';
      });
    }
    json.end_list().key("written").written('{', ready, '}');
    json.key("last").begin_object().end_object().end_object();
    return json;
  }

  [[nodiscard]] Json tree() const {
    Json lists = Json::array();
    for (size_t i = 0; i < 2; ++i) {
      lists.push_back(Json::array());
      for (size_t j = 0; j < ids.size(); ++j) lists[i].push_back(std::to_string(i + j));
    }
    return {{"n", 1},
            {"text", text},
            {"empty", ""},
            {"ids", ids},
            {"none", Json::array()},
            {"lists", lists},
            {"written", {{"ready", {1}}}},
            {"last", Json::object()}};
  }
};

TEST(JsonPiecesTest, WrittenInPiecesOfAnySizeItIsTheSameText) {
  Example example;
  for (int i = 0; i < 500; ++i) {
    example.text += i % 3 == 0 ? "\xe2\x82\xac" : i % 3 == 1 ? "\"" : "\xf0\x9f\x98\x80";
    example.ids.push_back(i * i);
  }
  const std::string whole = example.tree().dump();
  std::string at_once;
  example.pieces().write_all(at_once);
  EXPECT_EQ(at_once, whole);
  for (const size_t size : {1u, 2u, 7u, 64u, 1000u}) {
    JsonPieces pieces = example.pieces();
    std::string joined;
    std::string piece;
    while (pieces.next(piece, size)) {
      // Quotes become two characters; a character, a list's entry and small values are not divided.
      EXPECT_LE(piece.size(), 2 * size + 64);
      joined += piece;
      piece.clear();
    }
    EXPECT_TRUE(pieces.done());
    EXPECT_EQ(joined, whole) << size;
  }
}

TEST(JsonPiecesTest, IsDoneWithItsLastPiece) {
  JsonPieces pieces;
  pieces.begin_list().value("x").end_list();
  std::string out;
  EXPECT_FALSE(pieces.done());
  EXPECT_TRUE(pieces.next(out, 1000));
  EXPECT_TRUE(pieces.done());
  EXPECT_FALSE(pieces.next(out, 1000));
  EXPECT_EQ(out, R"(["x"])");
}

TEST(JsonPiecesTest, SmallValuesAreWrittenAsTheLibraryWritesThem) {
  const std::string text = "a \"quoted\" \\ line\n\x01 \x7f gr\xc3\xbcn";
  const char* const plain = "plain";
  const nlohmann::ordered_json expected = {text,
                                           plain,
                                           "literal",
                                           std::string_view("view"),
                                           std::numeric_limits<int64_t>::min(),
                                           std::numeric_limits<uint64_t>::max(),
                                           -7,
                                           true,
                                           false,
                                           nullptr,
                                           0.5,
                                           {{"a", text}}};
  JsonPieces pieces;
  pieces.begin_list().value(text).value(plain).value("literal").value(std::string_view("view"));
  pieces.value(std::numeric_limits<int64_t>::min()).value(std::numeric_limits<uint64_t>::max());
  pieces.value(-7).value(true).value(false).value(nullptr).value(0.5).value({{"a", text}});
  pieces.end_list();
  std::string out;
  pieces.write_all(out);
  EXPECT_EQ(out, expected.dump());
}

}  // namespace
}  // namespace heddle::server
