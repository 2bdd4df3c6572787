// SPDX-License-Identifier: Apache-2.0
#include "server/call/custom_tools.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

TEST(CustomInputReaderTest, ReadsTheTextHoweverItIsCut) {
  const std::string text = "*** Begin \"Patch\"\n\\d \t\u00e9 \U0001F600 end";
  std::vector<std::string> spellings;
  for (const bool ascii : {false, true}) {
    const std::string json = nlohmann::ordered_json{{"input", text}}.dump(-1, ' ', ascii);
    spellings.push_back(json);
    spellings.push_back("{ \"input\"\n: " + json.substr(std::string(R"({"input":)").size()));
  }
  for (const std::string& json : spellings) {
    for (size_t cut = 0; cut <= json.size(); ++cut) {
      CustomInputReader reader;
      std::string read = reader.add(json.substr(0, cut));
      read += reader.add(json.substr(cut));
      ASSERT_EQ(read, text) << json << " cut at " << cut;
    }
    CustomInputReader reader;
    std::string read;
    for (const char byte : json) read += reader.add(std::string_view(&byte, 1));
    EXPECT_EQ(read, text);
    EXPECT_EQ(custom_input(json), text);
  }
}

TEST(CustomInputReaderTest, LeavesOtherFormsToTheEnd) {
  for (const std::string_view json : {R"({"patch":"a"})", R"({"input":1})", R"(["a"])", "{"}) {
    CustomInputReader reader;
    EXPECT_EQ(reader.add(json), "") << json;
    EXPECT_EQ(custom_input(json), json);
  }
  const std::string half = "\xEF\xBF\xBD";
  for (const auto& [json, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input":"a\ud83dx"})", "a" + half + "x"},
           {R"({"input":"a\ud83d\n"})", "a" + half + "\n"},
           {R"({"input":"a\ude00x"})", "a" + half + "x"},
           {R"({"input":"\u00e9\/"} tail")", "\u00e9/"}}) {
    EXPECT_EQ(CustomInputReader().add(json), text) << json;
  }
}

}  // namespace
}  // namespace heddle::server
