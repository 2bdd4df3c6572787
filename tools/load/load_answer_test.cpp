// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_answer.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LoadRecord read_answer(std::string_view text) {
  LoadRecord record;
  LoadAnswer answer(record);
  double at = 1;
  for (const char byte : text) answer.feed({&byte, 1}, at += 1);
  answer.end(at + 1);
  return record;
}

TEST(LoadAnswer, ReadsACompletion) {
  const LoadRecord record = read_answer(
      "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}],\"usage\":null}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,"
      "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n"
      "data: [DONE]\n\n");
  EXPECT_FALSE(record.failure);
  ASSERT_EQ(record.arrivals.size(), 2u) << "one is without text";
  EXPECT_LT(record.arrivals[0].at, record.arrivals[1].at);
  EXPECT_EQ(record.input_tokens, 5);
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_EQ(record.cached_tokens, 2);
}

TEST(LoadAnswer, ReadsAChatWithReasoningAndCountsOfEachEvent) {
  const LoadRecord record = read_answer(
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}],"
      "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":\"stop\"}],"
      "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}}\n\n");
  EXPECT_FALSE(record.failure) << "a reason to finish is an end without [DONE]";
  ASSERT_EQ(record.arrivals.size(), 2u);
  EXPECT_EQ(record.arrivals[0].tokens, 1);
  EXPECT_EQ(record.arrivals[1].tokens, 3);
}

TEST(LoadAnswer, EachFaultIsAFailureOfItsKind) {
  EXPECT_EQ(read_answer("data: {\"choices\":[{\"text\":\"a\"}]}\n\n").failure->kind, "cut");
  EXPECT_EQ(read_answer("").failure->kind, "cut");
  EXPECT_EQ(read_answer("data: oops\n\ndata: [DONE]\n\n").failure->kind, "protocol");
  const LoadRecord record =
      read_answer("data: {\"error\":{\"message\":\"out of memory\"}}\n\ndata: [DONE]\n\n");
  EXPECT_EQ(record.failure->kind, "error in the stream");
  EXPECT_EQ(record.failure->message, "out of memory");
  // Values of the wrong type are ignored.
  EXPECT_FALSE(
      read_answer("data: {\"choices\":7,\"usage\":[]}\n\n"
                  "data: {\"choices\":[1,null,{\"delta\":3,\"text\":{}}]}\n\n"
                  "data: {\"usage\":{\"completion_tokens\":-4,\"prompt_tokens\":\"x\"}}\n\n"
                  "data: [DONE]\n\n")
          .failure);
}

TEST(LoadAnswer, ErrorsAreShownInWords) {
  EXPECT_EQ(error_message(R"({"error":{"message":"no"}})"), "no");
  EXPECT_EQ(error_message(R"({"error":"no"})"), "no");
  EXPECT_EQ(error_message(R"({"message":"no"})"), "no");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_LT(error_message(std::string(100000, 'x')).size(), 1000u);
}

std::vector<std::string> read_parts(const std::vector<std::string_view>& parts) {
  SseReader reader;
  std::vector<std::string> events;
  for (const std::string_view part : parts) {
    EXPECT_TRUE(reader.feed(part, [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

constexpr std::string_view kStream =
    "\xef\xbb\xbf"
    "data: one\n\n"
    ": a comment\r\n"
    "event: x\r\ndata: two\r\ndata:  three\r\n\r\n"
    "data\rdata:four\r\r"
    "id: 7\n\n"
    "data: \xc3\xa9\n\n"
    "data: [DONE]\n\n"
    "data: not ended\n";

const std::vector<std::string> kEvents = {"one", "two\n three", "\nfour", "\xc3\xa9", "[DONE]"};

TEST(SseReader, ReadsTheSameEventsHoweverTheBytesAreCut) {
  EXPECT_EQ(read_parts({kStream}), kEvents);
  for (size_t a = 0; a <= kStream.size(); ++a) {
    for (size_t b = a; b <= kStream.size(); ++b) {
      ASSERT_EQ(read_parts({kStream.substr(0, a), kStream.substr(a, b - a), kStream.substr(b)}),
                kEvents)
          << "cut at " << a << " and " << b;
    }
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < kStream.size(); ++i) bytes.push_back(kStream.substr(i, 1));
  EXPECT_EQ(read_parts(bytes), kEvents);
}

TEST(SseReader, FieldsOtherThanDataMakeNoEvent) {
  EXPECT_THAT(read_parts({"event: ping\n\nretry: 3\n\n\n\n"}), IsEmpty());
  EXPECT_THAT(read_parts({"data:\n\n"}), ElementsAre(""));
  EXPECT_THAT(read_parts({"database: x\n\n"}), IsEmpty());
}

TEST(SseReader, AnEndlessEventIsRefused) {
  SseReader reader;
  const std::string part(1 << 20, 'x');
  bool readable = true;
  for (int i = 0; i < 20; ++i) {
    readable = reader.feed(part, [](std::string_view) { FAIL() << "nothing ended"; });
  }
  EXPECT_FALSE(readable);
  EXPECT_FALSE(reader.feed("\n\n", [](std::string_view) { FAIL() << "it is over"; }));
}

}  // namespace
}  // namespace heddle::tools
