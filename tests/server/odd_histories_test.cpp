// SPDX-License-Identifier: Apache-2.0
// Histories whose items have fields that are null, missing or of another type than they should be,
// in every API: none of them ends a conversation, and nothing else of the history is lost.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A conversation in one API: `whole` is the body of a request, `list` the field with its messages
// or items, of which the first is a user's "q1" and the last a user's "q2".
struct Conversation {
  const char* path;
  const char* list;
  Json whole;
};

Conversation chat() {
  return {kChat, "messages", Json::parse(R"({"messages": [
    {"role": "user", "content": "q1"},
    {"role": "assistant", "content": "said", "refusal": null, "reasoning_content": "hm", "reasoning": "hm",
     "reasoning_details": [{"type": "reasoning.text", "text": "hm"}], "thinking": "hm", "audio": null, "name": "a",
     "tool_calls": [{"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "done"},
    {"role": "assistant", "content": null, "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "function", "name": "old", "content": [{"type": "text", "text": "parts"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "then"},
                                      {"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "p", "input": "x"}}]},
    {"role": "user", "content": [{"type": "text", "text": "middle"}]},
    {"role": "assistant", "content": "last"},
    {"role": "user", "content": "q2"}]})")};
}

Conversation responses() {
  return {"/v1/responses", "input", Json::parse(R"({"input": [
    {"role": "user", "content": "q1"},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}],
     "content": [{"type": "reasoning_text", "text": "hm"}], "status": "completed"},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
     "content": [{"type": "output_text", "text": "said", "annotations": []}, {"type": "refusal", "refusal": "no"}]},
    {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "namespace": "n", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "id": "o", "call_id": "c1", "output": "done", "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "parts"}]},
    {"type": "apply_patch_call", "call_id": "c3", "status": "completed", "operation": {"type": "delete_file", "path": "p"}},
    {"type": "apply_patch_call_output", "call_id": "c3", "status": "completed", "output": "patched"},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "loom"}},
    {"role": "user", "content": [{"type": "input_text", "text": "middle"}]},
    {"role": "assistant", "content": "last"},
    {"role": "user", "content": "q2"}]})")};
}

Conversation messages() {
  return {"/v1/messages", "messages", Json::parse(R"({"max_tokens": 5, "messages": [
    {"role": "user", "content": "q1"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "said", "citations": []},
                                      {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": "done"}]},
    {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                                      {"type": "compaction", "content": "short"}, {"type": "redacted_thinking", "data": "d"},
                                      {"type": "tool_use", "id": "c2", "name": "g", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "parts"}]},
                                 {"type": "text", "text": "middle"}]},
    {"role": "assistant", "content": "last"},
    {"role": "user", "content": "q2"}]})")};
}

Conversation ollama() {
  return {"/api/chat", "messages", Json::parse(R"({"messages": [
    {"role": "user", "content": "q1"},
    {"role": "assistant", "content": "said", "thinking": "hm", "images": null,
     "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]},
    {"role": "tool", "tool_name": "f", "tool_call_id": "c1", "content": "done"},
    {"role": "user", "content": "middle", "images": []},
    {"role": "assistant", "content": "last"},
    {"role": "user", "content": "q2"}]})")};
}

class OddHistoriesTest : public ResponsesFixture {
 protected:
  // The prompt of a conversation with one member changed; its error, if it has one.
  [[nodiscard]] std::string prompt_of(const Conversation& conversation) const {
    const size_t before = engine->submitted().size();
    const Reply reply = post(conversation.path, conversation.whole);
    return reply.status == 200 && engine->submitted().size() > before ? last_prompt() : reply.body;
  }
};

// Takes every pointer below `value` that names a member or an entry.
void collect(const Json& value, const std::string& at, std::vector<std::string>& pointers) {
  for (const auto& [key, inner] : value.items()) {
    const std::string own = at + "/" + key;
    pointers.push_back(own);
    if (inner.is_structured()) collect(inner, own, pointers);
  }
}

// A role that is another text does not tell who spoke.
bool may_become(const std::string& pointer, const Json& value) {
  return !(pointer.ends_with("/role") && value.is_string() && value != "");
}

TEST_F(OddHistoriesTest, NoMemberOfAHistoryEndsAConversation) {
  start();
  const std::vector<Json> values = {nullptr,
                                    7,
                                    -1.5,
                                    true,
                                    false,
                                    "",
                                    "odd",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({nullptr}),
                                    Json::array({3}),
                                    {{"odd", Json::array({"x", 1})}}};
  constexpr size_t kStep = HEDDLE_SANITIZED ? 11 : 1;  // all of them take minutes there
  size_t num_members = 0;
  for (const Conversation& conversation : {chat(), responses(), messages(), ollama()}) {
    SCOPED_TRACE(conversation.path);
    ASSERT_THAT(prompt_of(conversation), HasSubstr("user: q1|"));
    const size_t size = conversation.whole[conversation.list].size();
    const std::string last = fmt::format("/{}/{}", conversation.list, size - 2);
    std::vector<std::string> pointers;
    for (size_t i = 1; i + 1 < size; ++i) {
      const std::string at = fmt::format("/{}/{}", conversation.list, i);
      pointers.push_back(at);
      collect(conversation.whole[conversation.list][i], at, pointers);
    }
    for (const std::string& pointer : pointers) {
      const Json::json_pointer place(pointer);
      for (size_t v = 0; v <= values.size(); ++v) {
        Conversation changed = conversation;
        if (v < values.size()) {
          if (!may_become(pointer, values[v])) continue;
          changed.whole[place] = values[v];
        } else if (!changed.whole[place.parent_pointer()].is_object()) {
          continue;
        } else {
          changed.whole[place.parent_pointer()].erase(place.back());
        }
        if (num_members++ % kStep != 0) continue;
        const std::string prompt = prompt_of(changed);
        ASSERT_TRUE(prompt.starts_with("user: q1|"))
            << pointer << " = " << (v < values.size() ? values[v].dump() : "absent") << "\n"
            << prompt;
        ASSERT_THAT(prompt, HasSubstr("q2|")) << pointer;
        if (!pointer.starts_with(last)) {
          ASSERT_THAT(prompt, HasSubstr("last")) << pointer;
        }
      }
    }
  }
  EXPECT_GT(num_members, 1000U);
}

struct OddMember {
  Conversation (*conversation)();
  const char* pointer;  // below the list
  Json value;           // what stands there; discarded: nothing
  const char* prompt;   // a part of the prompt
};

const Json kAbsent = Json(Json::value_t::discarded);

TEST_F(OddHistoriesTest, OddMembersReadAsWhatTheySay) {
  start();
  const std::vector<OddMember> members = {
      {chat, "/1/content", nullptr, "assistant: (hm)"},
      {chat, "/1/content", kAbsent, "assistant: (hm)"},
      {chat, "/1/content", 7, "assistant: 7(hm)"},
      {chat, "/1/content", {{"type", "text"}, {"text", "one"}}, "assistant: one(hm)"},
      {chat, "/1/content/", Json::array({nullptr, "a", 3}), "assistant: a 3(hm)"},
      {chat, "/5/content/1/text", nullptr, "assistant:  no(t)|"},
      {chat, "/5/content/1/text", kAbsent, "assistant:  no(t)|"},
      {chat, "/5/content/0/thinking",
       Json::array({{{"type", "text"}, {"text", "t1"}}, {{"type", "text"}, {"text", "t2"}}}),
       "(t1t2)|"},
      {chat, "/5/content/0/thinking", nullptr, "assistant: then no|"},
      {chat, "/5/content/1/type", nullptr, "assistant: then no(t)|"},
      {chat, "/1/role", nullptr, "assistant: said(hm)"},
      {chat, "/2/role", kAbsent, "tool: done|"},
      {chat, "/1/tool_calls", nullptr, "assistant: said(hm)|"},
      {chat, "/1/tool_calls", "odd", "assistant: said\n[tool_call: \"odd\"](hm)|"},
      {chat, "/1/tool_calls/0", nullptr, "assistant: said(hm)|"},
      {chat, "/1/tool_calls/0/id", 7, R"("id":"7")"},
      {chat, "/1/tool_calls/0/function", "g", R"("name":"g")"},
      {chat, "/1/tool_calls/0/function", nullptr, R"("name":"unknown")"},
      {chat, "/1/tool_calls/0/function/name", nullptr, R"("name":"unknown")"},
      {chat, "/1/tool_calls/0/function/arguments", nullptr, R"("arguments":{})"},
      {chat, "/1/tool_calls/0/function/arguments", 7, R"("arguments":"7")"},
      {chat, "/6/tool_calls/0/custom/input", nullptr, R"("arguments":{"input":""})"},
      {chat, "/6/tool_calls/0/custom/name", nullptr, R"("name":"unknown")"},
      {chat, "/2/content", nullptr, "|tool: |"},
      {chat, "/2/content", kAbsent, "|tool: |"},
      {chat, "/2/content", 3.5, "|tool: 3.5|"},
      {chat, "/2/content", true, "|tool: true|"},
      {chat, "/2/content", {{"temperature", 3}}, R"(|tool: {"temperature":3}|)"},
      {chat, "/2/content", Json::array({{{"city", "Oslo"}}}), R"(|tool: {"city":"Oslo"}|)"},
      {chat, "/2/tool_call_id", nullptr, "|tool: done|"},
      {chat, "/7/content", nullptr, "|user: |assistant: last|"},
      {chat, "/7/content/0/type", "image_url", "|user: [image_url]|"},
      {responses, "/1/content/0/text", nullptr, "assistant: saidno(s)"},
      {responses, "/1/content", nullptr, "(s)"},
      {responses, "/2/content", nullptr, "assistant: (hm)"},
      {responses, "/2/content", 7, "assistant: 7(hm)"},
      {responses, "/2/content/0/text", nullptr, "assistant: no(hm)"},
      {responses, "/2/role", nullptr, "assistant: saidno(hm)"},
      {responses, "/3/call_id", nullptr, R"("name":"n__f")"},
      {responses, "/3/name", nullptr, R"("name":"n__unknown")"},
      {responses, "/3/type", nullptr, R"("name":"n__f")"},
      {responses, "/3/arguments", {{"a", 1}}, R"("arguments":{"a":1})"},
      {responses, "/4/output", nullptr, "|tool: |"},
      {responses, "/4/output", kAbsent, "|tool: |"},
      {responses, "/4/output", 7, "|tool: 7|"},
      {responses, "/4/output", false, "|tool: false|"},
      {responses, "/6/output/0/text", nullptr, "|tool: |"},
      {responses, "/8/output", nullptr, "|tool: completed|"},
      {responses, "/10/content", nullptr, "|user: |assistant: last|"},
      {responses, "/10/content/0/type", "input_image", "|user: "},
      {messages, "/1/content", nullptr, "user: q1|assistant: |tool: done|"},
      {messages, "/1/content/1/text", nullptr, "assistant: (hm)"},
      {messages, "/1/content/0/thinking", nullptr, "assistant: said["},
      {messages, "/1/content/2/id", nullptr, R"("name":"f")"},
      {messages, "/1/content/2/name", 7, R"("name":"7")"},
      {messages, "/1/content/2/input", nullptr, R"("arguments":{})"},
      {messages, "/1/role", nullptr, "assistant: said(hm)"},
      {messages, "/2/content/0/tool_use_id", nullptr, "|tool: done|"},
      {messages, "/2/content/0/content", nullptr, "|tool: |"},
      {messages, "/2/content/0/content", 7, "|tool: 7|"},
      {messages, "/2/content/0/content", {{"a", 1}}, R"(|tool: {"a":1}|)"},
      {messages, "/2/content/0/is_error", "yes", "|tool: done|"},
      {messages, "/4/content/1/text", nullptr, "|tool: parts|user: |assistant: last|"},
      {messages, "/4/content/1/type", "image", "|user: [image]|"},
      {messages, "/5/content", kAbsent, "|assistant: |user: q2|"},
      {ollama, "/1/content", nullptr, "assistant: (hm)"},
      {ollama, "/1/content", 7, "assistant: 7(hm)"},
      {ollama, "/1/thinking", nullptr, "assistant: said["},
      {ollama, "/1/thinking", 7, "assistant: said(7)"},
      {ollama, "/1/tool_calls/0/function/name", nullptr, R"("name":"unknown")"},
      {ollama, "/1/tool_calls/0/function/arguments", "{}", R"("arguments":{})"},
      {ollama, "/2/content", 7, "|tool: 7|"},
      {ollama, "/2/tool_name", 7, "|tool: done|"},
      {ollama, "/3/images", Json::array({"aGk="}), "|user: middle [image]|"},
  };
  for (const OddMember& member : members) {
    Conversation changed = member.conversation();
    std::string pointer = fmt::format("/{}{}", changed.list, member.pointer);
    if (pointer.ends_with('/')) pointer.pop_back();
    SCOPED_TRACE(fmt::format("{} {}", changed.path, pointer));
    const Json::json_pointer place(pointer);
    if (member.value.is_discarded()) {
      changed.whole[place.parent_pointer()].erase(place.back());
    } else {
      changed.whole[place] = member.value;
    }
    EXPECT_THAT(prompt_of(changed), HasSubstr(member.prompt));
  }
}

TEST_F(OddHistoriesTest, IdsMayBeNumbersOfAnySize) {
  start();
  set_log_level(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  for (const std::string_view id :
       {"7", "98765432109876543210", "-98765432109876543210", "1e400"}) {
    for (const Conversation& conversation : {chat(), messages()}) {
      std::string body = conversation.whole.dump();
      constexpr std::string_view kId = "\"c1\"";
      for (size_t at = 0; (at = body.find(kId, at)) != std::string::npos;) {
        body.replace(at, kId.size(), id);
      }
      const Reply reply = connect().post_text(conversation.path, body);
      ASSERT_EQ(reply.status, 200) << reply.body;
      EXPECT_THAT(last_prompt(), HasSubstr(fmt::format(R"("id":"{}")", id)));
      EXPECT_THAT(last_prompt(), HasSubstr("|tool: done|"));
    }
  }
  set_log_level(LogLevel::kError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("id: number"));
  EXPECT_EQ(log.find("binary"), std::string::npos) << log;
}

TEST_F(OddHistoriesTest, TheNewestMessageIsChecked) {
  start();
  for (const Conversation& conversation : {chat(), responses(), messages()}) {
    const std::string last =
        fmt::format("/{}/{}", conversation.list, conversation.whole[conversation.list].size() - 1);
    for (const Json& value : std::vector<Json>{nullptr, 7, {{"type", "text"}}, Json::array({7})}) {
      Conversation changed = conversation;
      changed.whole[Json::json_pointer(last + "/content")] = value;
      EXPECT_EQ(post(changed.path, changed.whole).status, 400) << last << value;
    }
    Conversation changed = conversation;
    changed.whole[Json::json_pointer(last)] = nullptr;
    EXPECT_EQ(post(changed.path, changed.whole).status, 400) << last;
  }
  Conversation changed = ollama();
  changed.whole["messages"][5]["images"] = Json::array({"aGk="});
  EXPECT_EQ(post(changed.path, changed.whole).status, 400);
}

TEST_F(OddHistoriesTest, AFieldOfAnotherTypeIsLoggedOnce) {
  start();
  set_log_level(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  Conversation changed = chat();
  changed.whole["messages"][2]["content"] = 7;
  changed.whole["messages"][1]["content"] = nullptr;
  for (int i = 0; i < 2; ++i) EXPECT_THAT(prompt_of(changed), HasSubstr("tool: 7|"));
  set_log_level(LogLevel::kError);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t at = log.find("the type of a field `content: number` is not used");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("is not used", at + 60), std::string::npos) << log;
}

}  // namespace
}  // namespace heddle::server
