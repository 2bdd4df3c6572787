// SPDX-License-Identifier: Apache-2.0
// Messages that name uploaded files by their ids: text files of the same key are text in every API.
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/key_ring.h"
#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StoredTextsTest : public ResponsesFixture {
 protected:
  [[nodiscard]] std::string upload(std::string_view content, std::string_view filename = "notes.md",
                                   std::string_view headers = {}) const {
    const std::string form = fmt::format(
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"{}\"\r\n\r\n{}\r\n--b--\r\n",
        filename, content);
    const Reply reply =
        connect().call("POST", "/v1/files", form,
                       fmt::format("Content-Type: multipart/form-data; boundary=b\r\n{}", headers));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? reply.json()["id"].get<std::string>() : "";
  }

  // The prompt of a user's message with this part; its error, if it has one.
  [[nodiscard]] std::string prompt_of(std::string_view path, const char* list, const Json& part,
                                      std::string_view headers = {}) const {
    const Json messages = Json::array({{{"role", "user"}, {"content", Json::array({part})}}});
    const Json body = {{list, messages}, {"max_tokens", 5}};
    const Reply reply = connect().call(
        "POST", path, body.dump(), fmt::format("Content-Type: application/json\r\n{}", headers));
    return reply.status == 200 ? last_prompt() : fmt::format("{} {}", reply.status, reply.body);
  }

  [[nodiscard]] std::string chat(const std::string& id, std::string_view headers = {}) const {
    return prompt_of(kChat, "messages", {{"type", "file"}, {"file", {{"file_id", id}}}}, headers);
  }

  [[nodiscard]] std::string input(const std::string& id) const {
    return prompt_of("/v1/responses", "input", {{"type", "input_file"}, {"file_id", id}});
  }

  [[nodiscard]] std::string document(const std::string& id) const {
    return prompt_of("/v1/messages", "messages",
                     {{"type", "document"}, {"source", {{"type", "file"}, {"file_id", id}}}});
  }
};

TEST_F(StoredTextsTest, AFileOfTextIsText) {
  start();
  const std::string id = upload("na\u00efve text\nof two lines");
  const std::string expected = "user: notes.md:\nna\u00efve text\nof two lines|";
  EXPECT_THAT(chat(id), HasSubstr(expected));
  EXPECT_THAT(input(id), HasSubstr(expected));
  EXPECT_THAT(document(id), HasSubstr(expected));
  EXPECT_THAT(prompt_of(kChat, "messages",
                        {{"type", "file"}, {"file", {{"file_id", id}, {"filename", "other"}}}}),
              HasSubstr("user: other:\n"));
}

TEST_F(StoredTextsTest, AFileThatIsNoTextIsRefused) {
  start();
  for (const auto& [content, name] : std::vector<std::pair<std::string, std::string>>{
           {"%PDF-1.7", "a.pdf"}, {"\xff\xfe", "a.txt"}, {std::string("a\0b", 3), "a"}}) {
    const std::string id = upload(content, name);
    for (const std::string& answer : {chat(id), input(id), document(id)}) {
      EXPECT_THAT(answer, HasSubstr("400 ")) << name;
    }
  }
  EXPECT_THAT(chat(upload("%PDF-1.7", "a.pdf")), HasSubstr("application/pdf"));
}

TEST_F(StoredTextsTest, AFileThatIsNotThereIsNamed) {
  start();
  for (const std::string& answer :
       {chat("file-1"), input("file-1"), document("file-1"), chat("../../etc/passwd")}) {
    EXPECT_THAT(answer, HasSubstr("404 "));
    EXPECT_THAT(answer, HasSubstr("There is no file `"));
  }
  EXPECT_THAT(chat("file-1"), HasSubstr("messages[0].content[0].file.file_id"));
  EXPECT_THAT(input("file-1"), HasSubstr("input[0].content[0].file_id"));
  const std::string id = upload("text");
  EXPECT_EQ(connect().call("DELETE", "/v1/files/" + id).status, 200);
  EXPECT_THAT(chat(id), HasSubstr("404 "));
  const Json history = {
      {{"role", "user"},
       {"content", Json::array({{{"type", "file"}, {"file", {{"file_id", id}}}}})}},
      {{"role", "assistant"}, {"content", "ok"}},
      {{"role", "user"}, {"content", "next"}}};
  EXPECT_EQ(post(kChat, {{"messages", history}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr("user: [file]|")) << "it was deleted after it was asked";
}

TEST_F(StoredTextsTest, AnotherKeysFileIsNotThere) {
  options.api_keys = parse_api_keys("sk-of-one one\nsk-of-two two\n").value();
  start();
  const std::string one = "Authorization: Bearer sk-of-one\r\n";
  const std::string two = "Authorization: Bearer sk-of-two\r\n";
  const std::string id = upload("a secret", "s.txt", one);
  EXPECT_THAT(chat(id, one), HasSubstr("a secret"));
  EXPECT_THAT(chat(id, two), HasSubstr("404 "));
  EXPECT_THAT(chat(id, two), Not(HasSubstr("secret")));
}

TEST_F(StoredTextsTest, AWebPageDoesNotReachFiles) {
  start();
  const std::string id = upload("a secret");
  const std::string answer = chat(id, "Origin: http://evil.example\r\n");
  EXPECT_THAT(answer, HasSubstr("403 "));
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
}

TEST_F(StoredTextsTest, AShortRequestReadsNoManyBytes) {
  start();
  const std::string id = upload(std::string(3 << 20, 'x'));
  Json parts = Json::array();
  for (int i = 0; i < 1000; ++i) parts.push_back({{"type", "file"}, {"file", {{"file_id", id}}}});
  const Reply reply =
      post(kChat, {{"messages", Json::array({{{"role", "user"}, {"content", parts}}})}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "messages[0].content[5].file.file_id");
  EXPECT_THAT(reply.body, HasSubstr("16 MiB"));
}

}  // namespace
}  // namespace heddle::server
