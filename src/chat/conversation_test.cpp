// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "chat/golden_fixture.h"
#include "chat/spelled_json.h"

namespace heddle::chat {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// ---- Templates with the habits of published ones ----

// As Qwen3.5: a system text only at the beginning, parts are read, no tool results apart from
// turns.
constexpr std::string_view kSystemFirst = R"(
{%- macro show(content) %}
    {%- if content is string %}{{ content }}
    {%- else %}{%- for part in content %}{{ part.text }}{%- endfor %}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('System message must be at the beginning.') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + show(message.content)|trim }}
    {%- for call in message.tool_calls %}
        {{- '<tool_call>' + {'name': call.function.name, 'arguments': call.function.arguments}|tojson + '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %})";

// As Gemma 2: no system texts, roles in turn, no tools.
constexpr std::string_view kTurnsOnly = R"(
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<start_of_turn>' + message.role + '\n' + message.content|trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %})";

// As Mistral 7B v0.3: a system text within the last user's turn, roles in turn, calls instead of
// text, ids of nine characters.
constexpr std::string_view kShortIds = R"(
{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
    {%- if message.role == 'user' or (message.role == 'assistant' and message.tool_calls is undefined) %}
        {%- if (message.role == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('Roles must alternate') }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in rest %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.last and system_message is defined %}{{ system_message + '\n\n' }}{%- endif %}
        {{- message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {%- for call in message.tool_calls %}
            {%- if call.id|length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}
            {{- '[TOOL_CALLS]' + call.function|tojson + call.id }}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}{{ ' ' + message.content + '</s>' }}
    {%- elif message.role == 'tool' %}
        {%- if message.tool_call_id|length != 9 %}{{ raise_exception('ids!') }}{% endif %}
        {{- '[TOOL_RESULTS]' + {'content': message.content}|tojson + '[/TOOL_RESULTS]' }}
    {%- else %}{{ raise_exception('Only user and assistant roles are supported') }}
    {%- endif %}
{%- endfor %})";

// As Llama 3.1: one call a message, results as JSON.
constexpr std::string_view kOneCall = R"(
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {%- if message.tool_calls %}
        {%- if message.tool_calls|length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {{- {'name': message.tool_calls[0].function.name, 'parameters': message.tool_calls[0].function.arguments}|tojson }}
    {%- elif message.role == 'tool' %}{{ message.content|tojson }}
    {%- else %}{{ message.content|trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %})";

// Passes over all roles but user and assistant, and all calls.
constexpr std::string_view kTextOnly = R"(
{%- for message in messages %}
    {%- if message.role == 'user' %}{{ 'USER: ' + message.content + '\n' }}
    {%- elif message.role == 'assistant' %}{{ 'ASSISTANT: ' + message.content + '\n' }}
    {%- endif %}
{%- endfor %})";

// Arguments are joined as text.
constexpr std::string_view kJoined = R"(
{%- for message in messages %}
    {{- message.role + ': ' + message.content + '\n' }}
    {%- for call in message.tool_calls %}{{ call.function.name + '(' + call.function.arguments + ')\n' }}{%- endfor %}
{%- endfor %})";

// As Qwen3-Coder's template: writes arguments one by one.
constexpr std::string_view kTagged = R"(
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
    {%- for call in message.tool_calls %}
        {{- '<function=' + call.function.name + '>' }}
        {%- for name, value in call.function.arguments|items %}
            {{- '<parameter=' + name + '>' + (value if value is string else value|tojson) + '</parameter>' }}
        {%- endfor %}
        {{- '</function>' }}
    {%- endfor %}
    {{- '<|im_end|>' }}
{%- endfor %})";

// As LLaVA's: nothing but lists of parts, no tools.
constexpr std::string_view kListsOnly = R"(
{%- for message in messages %}
    {{- message.role.upper() + ': ' }}
    {%- for part in message.content | selectattr('type', 'equalto', 'text') %}{{ part.text + ' ' }}{%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{%- endif %})";

// As kListsOnly, with an exception instead of silence.
constexpr std::string_view kListsOrError = R"(
{%- for message in messages %}
    {%- if message.content is string %}{{ raise_exception('Content must be a list') }}{%- endif %}
    {{- message.role + ': ' }}{%- for part in message.content %}{{ part.text }}{%- endfor %}|
{%- endfor %})";

// Lists for users only, as templates of models that see pictures have them.
constexpr std::string_view kUsersLists = R"(
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- 'user: ' }}{%- for part in message.content if part.type == 'text' %}{{ part.text }}{%- endfor %}|
    {%- else %}{{ message.role + ': ' + message.content + '|' }}{%- endif %}
{%- endfor %})";

// A user has the last word; no calls.
constexpr std::string_view kUserLast = R"(
{%- if messages[-1].role != 'user' %}{{ raise_exception('The last message must be a user\'s') }}{%- endif %}
{%- for message in messages %}{{ message.role + ': ' + message.content + '|' }}{%- endfor %}
{%- for tool in tools or [] %}{{ tool.function.name }}|{%- endfor %})";

struct NamedTemplate {
  std::string name;
  std::string source;
};

std::vector<NamedTemplate> own_templates() {
  return {{"system first", std::string(kSystemFirst)},
          {"turns only", std::string(kTurnsOnly)},
          {"short ids", std::string(kShortIds)},
          {"one call", std::string(kOneCall)},
          {"text only", std::string(kTextOnly)},
          {"joined", std::string(kJoined)},
          {"tagged", std::string(kTagged)},
          {"lists only", std::string(kListsOnly)},
          {"lists or an error", std::string(kListsOrError)},
          {"users' lists", std::string(kUsersLists)}};
}

// ---- Conversations that templates do not expect ----

Json turn(const char* role, const Json& content) { return {{"role", role}, {"content", content}}; }

Json call(const std::string& id, const char* name, const Json& arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

Json calling(const char* content, const Json& calls) {
  Json message = turn("assistant", content);
  message["tool_calls"] = calls;
  return message;
}

Json result(const char* id, const char* content) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"content", content}};
}

struct Dialogue {
  std::string name;
  Json messages;
};

// Every word of these conversations is "wq" and a number, which no template writes by itself, so
// that the test can look for each word in the prompt.
std::vector<Dialogue> adversarial_dialogues() {
  const Json system = turn("system", "wq1 wq2\n\nwq3");
  const Json user = turn("user", "wq4 wq5");
  const Json assistant = turn("assistant", "wq6\nwq7");
  const Json late = turn("system", "wq8 wq9");
  const Json developer = turn("developer", "wq10 wq11");
  const Json next = turn("user", "wq12");
  const Json one = Json::array(
      {call("call_1", "wq13", R"({"wq14": "wq15 \"wq16\"", "n": [1, {"a": "wq17"}]})")});
  const Json two = Json::array(
      {call("call_1", "wq13", R"({"a": "wq15"})"), call("call_2", "wq18", R"({"b":"wq19"})")});
  const Json first_result = result("call_1", "wq20 \"wq21\"\nwq22");
  const Json second_result = result("call_2", "wq23");
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "wq24"}}, {{"type", "text"}, {"text", "wq25"}}});
  return {
      {"plain", {system, user, assistant, next}},
      {"two leading systems", {system, developer, user}},
      {"three leading systems", {system, late, developer, user, assistant, next}},
      {"developer first", {developer, user}},
      {"late system", {system, user, assistant, late, next}},
      {"late system without a first", {user, assistant, late, next}},
      {"late system behind a user", {user, late, assistant, next}},
      {"system last", {system, user, late}},
      {"system and developer last", {user, assistant, next, late, developer}},
      {"only a system text", Json::array({system})},
      {"systems between all", {system, user, late, assistant, developer, next}},
      {"assistant first", {assistant, user}},
      {"system, assistant first", {system, assistant, next}},
      {"two users in a row", {user, next}},
      {"two assistants in a row", {user, assistant, turn("assistant", "wq26"), next}},
      {"assistant last", {system, user, assistant}},
      {"call", {user, calling("", one), first_result}},
      {"call and answer", {system, user, calling("", one), first_result, assistant, next}},
      {"text beside a call", {user, calling("wq27 wq28", one), first_result, assistant, next}},
      {"two calls", {user, calling("", two), first_result, second_result, assistant, next}},
      {"two calls, results swapped", {user, calling("wq27", two), second_result, first_result}},
      {"developer after a tool", {user, calling("", one), first_result, developer}},
      {"system after a tool, then a user", {user, calling("", one), first_result, late, next}},
      {"user after a tool", {user, calling("", one), first_result, next}},
      {"result without a call", {user, assistant, result("call_9", "wq29"), next}},
      {"result first", {result("call_9", "wq29"), next}},
      {"function's result", {user, {{"role", "function"}, {"name", "now"}, {"content", "wq30"}}}},
      {"call without a result", {user, calling("", one), next}},
      {"cut arguments",
       {user, calling("", Json::array({call("call_1", "wq13", R"({"city": "wq31 of)")})),
        first_result, next}},
      {"arguments that are a list",
       {user, calling("", Json::array({call("call_1", "wq13", R"(["wq32"])")})), first_result}},
      {"arguments that are no JSON",
       {user, calling("", Json::array({call("call_1", "wq13", "wq33: {wq34")})), first_result}},
      {"empty arguments",
       {user, calling("", Json::array({call("call_1", "wq13", "")})), first_result}},
      {"arguments as an object",
       {user, calling("", Json::array({call("call_1", "wq13", {{"k", "wq35"}})})), first_result}},
      {"parts",
       {turn("system", parts), turn("user", parts), turn("assistant", parts),
        turn("user", "wq26")}},
      {"parts and systems", {turn("system", parts), developer, turn("user", parts), late, next}},
      {"empty answer", {user, turn("assistant", ""), next}},
  };
}

std::set<std::string> words_of(const Json& messages) {
  std::set<std::string> words;
  const std::string text = messages.dump();
  for (size_t i = 0; (i = text.find("wq", i)) != std::string::npos;) {
    size_t end = i + 2;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    words.insert(text.substr(i, end - i));
    i = end;
  }
  return words;
}

// The words that the prompt lacks.
std::string missing_words(const Json& messages, const std::string& prompt) {
  std::string missing;
  for (const std::string& word : words_of(messages)) {
    size_t at = prompt.find(word);
    // wq1 is not wq12.
    while (at != std::string::npos && at + word.size() < prompt.size() &&
           prompt[at + word.size()] >= '0' && prompt[at + word.size()] <= '9') {
      at = prompt.find(word, at + 1);
    }
    if (at == std::string::npos) missing += word + " ";
  }
  return missing;
}

// A model folder with this template; templates want the special tokens.
ConversationRenderer renderer_of(std::string_view source) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("heddle_conversation_{}", getpid());
  std::filesystem::create_directories(folder);
  const Json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", source}};
  std::ofstream(folder / "tokenizer_config.json", std::ios::binary) << config.dump();
  ChatTemplateOptions options;
  options.local_now = golden_time;
  auto loaded = ChatTemplate::load(folder, options);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  return ConversationRenderer(std::move(loaded).value());
}

std::string rendered(const ConversationRenderer& renderer, const Json& messages,
                     const Json& tools = nullptr) {
  return shown(renderer.render(messages, tools, true, nullptr));
}

Json some_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "wq13", "description": "d",
      "parameters": {"type": "object", "properties": {"wq14": {"type": "string"}}}}}])");
}

// Every word is in the prompt, or the request fails with a message. Counts the failures.
int check_dialogues(const NamedTemplate& chosen) {
  int failures = 0;
  const ConversationRenderer renderer = renderer_of(chosen.source);
  for (const Dialogue& dialogue : adversarial_dialogues()) {
    for (const Json& tools : {Json(), some_tools()}) {
      SCOPED_TRACE(fmt::format("{}: {}{}", chosen.name, dialogue.name,
                               tools.is_null() ? "" : ", with tools"));
      const auto prompt = renderer.render(dialogue.messages, tools, true, nullptr);
      if (prompt.ok()) {
        EXPECT_EQ(missing_words(dialogue.messages, *prompt), "") << *prompt;
        continue;
      }
      ++failures;
      EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
      EXPECT_GT(prompt.status().message().size(), 10U);
    }
  }
  return failures;
}

TEST(ConversationTest, EveryWordOfEveryDialogueReachesThePrompt) {
  for (const NamedTemplate& chosen : own_templates()) EXPECT_EQ(check_dialogues(chosen), 0);
}

TEST(ConversationTest, LeadingSystemTextsAreJoinedAndLaterOnesStayWhereTheTemplateTakesThem) {
  const Json messages = {turn("system", "a"),    turn("developer", "b"), turn("user", "c"),
                         turn("assistant", "d"), turn("system", "e"),    turn("user", "f")};
  EXPECT_EQ(rendered(renderer_of(kOneCall), messages),
            "<|start_header_id|>system<|end_header_id|>\n\na\n\nb<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nd<|eot_id|>"
            "<|start_header_id|>system<|end_header_id|>\n\ne<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nf<|eot_id|>");
  EXPECT_EQ(rendered(renderer_of(kSystemFirst), messages),
            "<|im_start|>system\na\n\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
            "<|im_start|>assistant\nd<|im_end|>\n<|im_start|>user\ne\n\nf<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(
      rendered(renderer_of(kTurnsOnly), messages),
      "<start_of_turn>user\na\n\nb\n\nc<end_of_turn>\n<start_of_turn>assistant\nd<end_of_turn>\n"
      "<start_of_turn>user\ne\n\nf<end_of_turn>\n<start_of_turn>model\n");
}

TEST(ConversationTest, APromptIsTheBeginningOfTheNextTurns) {
  const std::vector<Json> turns = {
      turn("system", "rules"), turn("user", "one"), turn("system", "late"), turn("assistant", "a"),
      turn("system", "more"),  turn("user", "two"), turn("assistant", "b"), turn("user", "three")};
  for (const std::string_view source : {kSystemFirst, kTurnsOnly, kOneCall, kTextOnly}) {
    const ConversationRenderer renderer = renderer_of(source);
    std::string before;
    Json messages = Json::array();
    for (const Json& next : turns) {
      messages.push_back(next);
      if (next["role"] != "assistant") continue;  // where the server answered
      auto prompt = renderer.render(messages, nullptr, false, nullptr);
      ASSERT_TRUE(prompt.ok()) << prompt.status().to_string();
      EXPECT_TRUE(prompt->starts_with(before)) << *prompt;
      before = *std::move(prompt);
    }
  }
}

TEST(ConversationTest, ListsGoToTemplatesThatReadThem) {
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "one"}}, {{"type", "text"}, {"text", "two"}}});
  const Json messages = Json::array({turn("user", parts)});
  EXPECT_THAT(rendered(renderer_of(kSystemFirst), messages), HasSubstr("\nonetwo<"));
  EXPECT_THAT(rendered(renderer_of(kOneCall), messages), HasSubstr("\none two<"));
  const auto lines = renderer_of(kOneCall).render(messages, nullptr, true, nullptr, "\n");
  EXPECT_THAT(shown(lines), HasSubstr("\none\ntwo<"));
}

TEST(ConversationTest, TemplatesThatReadNothingButListsGetThem) {
  const Json messages = {turn("system", "rules"), turn("user", "one"), turn("assistant", "two"),
                         turn("user", "three")};
  EXPECT_EQ(rendered(renderer_of(kListsOnly), messages),
            "SYSTEM: rules USER: one ASSISTANT: two USER: three ASSISTANT:");
  EXPECT_EQ(rendered(renderer_of(kListsOrError), messages),
            "system: rules|user: one|assistant: two|user: three|");
  EXPECT_EQ(rendered(renderer_of(kUsersLists), messages),
            "system: rules|user: one|assistant: two|user: three|");
  const Json called = {turn("user", "one"), calling("", Json::array({call("c", "f", "{}")})),
                       result("c", "done")};
  EXPECT_EQ(rendered(renderer_of(kListsOnly), called),
            "USER: one ASSISTANT: {\"name\": \"f\", \"arguments\": {}} USER: Result of f:\ndone "
            "ASSISTANT:");
}

TEST(ConversationTest, CallsOfATemplateThatShowsNoneAreText) {
  const Json calls = Json::array({call("c", "wq13", R"({"n": 3})")});
  const Json messages = {turn("user", "call wq13"), calling("", calls), result("c", "done"),
                         turn("user", "next")};
  const Json tools = some_tools();
  for (const std::string_view source :
       {kUserLast, kTextOnly, kTurnsOnly, kListsOnly, kUsersLists}) {
    for (const Json& shown : {Json(), tools}) {
      EXPECT_THAT(rendered(renderer_of(source), messages, shown),
                  HasSubstr(R"({"name": "wq13", "arguments": {"n": 3}})"))
          << source << shown;
    }
  }
}

TEST(ConversationTest, KnowsWhetherATemplateShowsTools) {
  for (const std::string_view source : {kSystemFirst, kTurnsOnly, kTextOnly}) {
    EXPECT_FALSE(renderer_of(source).shows_tools()) << source;
  }
  const std::string list = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}";
  const std::string said = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string beside_system = "{% if messages[0].role == 'system' %}" + list + "{% endif %}";
  for (const std::string& source :
       {list + said, said + "{{ tools | tojson }}", beside_system + said}) {
    EXPECT_TRUE(renderer_of(source).shows_tools()) << source;
  }
}

// Published templates, and some that want other members.
TEST(ConversationTest, AToolWithoutWhatTheTemplateNeedsOfItEndsNoRequest) {
  const auto with = [](const char* tool_text, const Json& function) {
    const std::string source = fmt::format(
        "{{%- for m in messages %}}{{{{ m.content }}}}|{{%- endfor %}}"
        "{{%- for t in tools or [] %}}{{%- set f = t.function %}}{{{{ {} }}}}|{{%- endfor %}}",
        tool_text);
    return rendered(renderer_of(source), Json::array({turn("user", "x")}),
                    Json::array({{{"type", "function"}, {"function", function}}}));
  };
  const Json bare = {{"name", "f"}};
  const Json nulls = {{"name", "f"}, {"description", nullptr}, {"parameters", nullptr}};
  const Json whole = {{"name", "f"}, {"description", "d"}, {"parameters", {{"type", "object"}}}};
  for (const Json& function : {bare, nulls}) {
    EXPECT_EQ(with("'// ' + f.description", function), "x|// |");
    EXPECT_EQ(with("f.description.split('x')|length", function), "x|1|");
    EXPECT_EQ(with("f.parameters.properties|length", function), "x|0|");
    EXPECT_EQ(with("f.description + f.parameters.type", function), "x|object|");
  }
  EXPECT_EQ(with("f|tojson", bare), R"(x|{"name": "f"}|)") << "nothing is added that is not needed";
  EXPECT_EQ(with("'// ' + f.description", whole), "x|// d|");
}

TEST(ConversationTest, ArgumentsKeepTheirSpelling) {
  const auto prompt = [](std::string_view source, const Json& arguments) {
    return rendered(renderer_of(source),
                    {turn("user", "x"), calling("", Json::array({call("c", "f", arguments)})),
                     result("c", "y")});
  };
  for (const std::string text :
       {R"({"a":1,"b":[1,2]})", R"({ "a" : "\u00e9" })", R"({"a": "cut of)", R"(["x"])", "no JSON",
        R"({"a": 1}})", R"({"a" 1})", R"({"a": 1e999})", R"({"a": tru)", R"({"a": "\ud83d\ude)"}) {
    EXPECT_THAT(prompt(kSystemFirst, text), HasSubstr(R"("arguments": )" + text + "}")) << text;
    EXPECT_THAT(prompt(kJoined, text), HasSubstr("f(" + text + ")")) << text;
  }
  for (const char* const empty : {"", " ", "{}"}) {
    EXPECT_THAT(prompt(kSystemFirst, empty), HasSubstr(R"("arguments": {}})"));
  }
  EXPECT_THAT(prompt(kTagged, R"({"city": "cut of)"), HasSubstr("<parameter=city>cut of<"));
  EXPECT_THAT(prompt(kTagged, R"({"a": "b", "l": [1,2)"), HasSubstr("<parameter=l>[1,2<"));
  EXPECT_THAT(prompt(kTagged, "no JSON"), HasSubstr("<parameter=arguments>no JSON<"));
  EXPECT_THAT(prompt(kSystemFirst, {{"a", 1}, {"b", {1, 2}}}),
              HasSubstr(R"("arguments": {"a": 1, "b": [1, 2]}})"));
}

TEST(ConversationTest, SaysWhichTextATemplateLeavesOut) {
  const ConversationRenderer renderer =
      renderer_of("{%- for m in messages %}{{ m.content[:8] }}|{%- endfor %}");
  EXPECT_EQ(rendered(renderer, {turn("user", "short"), turn("assistant", "this is long")}),
            "short|this is |")
      << "what a model wrote ends no conversation";
  EXPECT_EQ(rendered(renderer, {turn("system", "short"), turn("user", "this is long")}),
            "error: The model's chat template leaves the text of message 1 (role user) out of the "
            "prompt. Send it with another role, for example as a user's message.");
}

TEST(ConversationTest, MarksThatTheTemplateKnowsMayBeTakenOut) {
  const ConversationRenderer renderer = renderer_of(R"(
{%- for m in messages %}
    {%- if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}
    {%- else %}{{ m.content.replace('/no_think', '') }}{%- endif %}|
{%- endfor %})");
  EXPECT_EQ(rendered(renderer, {turn("user", "wise /no_think words"),
                                turn("assistant", "<think>hm</think>\nanswer")}),
            "wise  words|\nanswer|");
}

TEST(ConversationTest, ATemplatesOwnRefusalIsTheError) {
  const ConversationRenderer renderer = renderer_of("{{ raise_exception('Nothing is served.') }}");
  EXPECT_EQ(rendered(renderer, Json::array({turn("user", "x")})), "error: Nothing is served.");
}

TEST(ConversationTest, ALongConversationIsCheckedInLinearTime) {
  // Each text begins as the others do, and system texts are moved to the front.
  Json messages = Json::array();
  const std::string long_text(1000, 'a');
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(turn(i % 2 == 0 ? "user" : "system", fmt::format("{}{}", long_text, i)));
  }
  const ConversationRenderer renderer = renderer_of(
      "{%- for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
      "{%- for m in messages if m.role != 'system' %}{{ m.content }}\n{% endfor %}");
  const auto prompt = renderer.render(messages, nullptr, true, nullptr);
  ASSERT_TRUE(prompt.ok()) << prompt.status().to_string();
  EXPECT_GT(prompt->size(), 2'000'000U);
}

std::vector<NamedTemplate> shared_templates(const std::filesystem::path& folder) {
  std::vector<NamedTemplate> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (!entry.is_regular_file() || path.parent_path().filename() == "render_cases") continue;
    found.push_back({.name = std::filesystem::relative(path, folder).string(),
                     .source = path.extension() == ".json"
                                   ? read_json(path).at("chat_template").get<std::string>()
                                   : read_text(path)});
  }
  return found;
}

TEST(ConversationSharedTest, EveryWordOfEveryDialogueReachesThePromptOfEveryTemplate) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const auto templates = shared_templates(folder);
  EXPECT_GT(templates.size(), 100U);
  // Templates that want what no conversation has: tools in every one or in none, a variable
  // `functions`, messages that can be changed.
  const std::set<std::string> kUnusable = {
      "llama.cpp-variants/fireworks-ai-llama-3-firefunction-v2.jinja",
      "llama.cpp/fireworks-ai-llama-3-firefunction-v2.jinja",
      "llama.cpp-variants/llama-cpp-deepseek-r1.jinja",
      "llama.cpp/llama-cpp-deepseek-r1.jinja",
      "llama.cpp/CohereForAI-c4ai-command-r-plus-tool_use.jinja",
      "llama.cpp/MiroThinker.jinja",
      "llama.cpp/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja",
      "llama.cpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja"};
  for (const NamedTemplate& chosen : templates) {
    const int failures = check_dialogues(chosen);
    if (kUnusable.contains(chosen.name)) continue;
    EXPECT_EQ(failures, 0) << chosen.name;
  }
}

// The template variables of a recorded render, without `messages` and `tools`.
Json variables_of(const Json& context) {
  Json variables = context;
  for (const char* const name : {"messages", "tools", "add_generation_prompt"}) {
    variables.erase(name);
  }
  return variables;
}

TEST(ConversationSharedTest, OfficialTemplatesThatReadListsGetThem) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "one"}}, {{"type", "text"}, {"text", "two"}}});
  const Json messages = {turn("user", parts), turn("assistant", "ok"), turn("user", parts)};
  for (const char* const name :
       {"hf/Qwen3.5-4B.jinja", "hf/Qwen2.5-VL-7B-Instruct.jinja", "hf/GLM-4.5.jinja",
        "llama.cpp/google-gemma-4-31B-it.jinja", "llama.cpp/Kimi-K2-Instruct.jinja"}) {
    EXPECT_THAT(rendered(renderer_of(read_text(folder / name)), messages), HasSubstr("onetwo"))
        << name;
  }
  for (const char* const name : {"hf/Qwen3-30B-A3B.jinja", "hf/Llama-3.1-8B-Instruct.jinja"}) {
    EXPECT_THAT(rendered(renderer_of(read_text(folder / name)), messages), HasSubstr("one two"))
        << name;
  }
}

TEST(ConversationSharedTest, ToolsNeedNothingButAName) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "wq13"}},
      {"type": "function", "function": {"name": "wq14", "description": null, "parameters": {"type": "object", "properties": {"a": {}}}}}])");
  for (const NamedTemplate& chosen : shared_templates(folder)) {
    const ConversationRenderer renderer = renderer_of(chosen.source);
    const Json messages = Json::array({turn("user", "x")});
    if (!renderer.render(messages, some_tools(), true, nullptr).ok()) continue;
    const auto text = renderer.render(messages, tools, true, nullptr);
    EXPECT_TRUE(text.ok()) << chosen.name << ": " << shown(text);
  }
}

TEST(ConversationSharedTest, NoConversationThatTransformersRendersIsRefused) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const Json goldens =
      read_json(testing::repository_path("tests/golden/chat/template_digests.json"));
  std::vector<Json> contexts;
  for (const auto& [name, context] : goldens.at("conversations").items()) {
    if (name != "odd" && name != "image") contexts.push_back(context);
  }
  const Json renders = read_json(folder / "render_cases/hf_golden_renders.json");
  std::set<std::string> seen;
  for (const Json& golden : renders.at("cases")) {
    if (seen.insert(golden.at("context").dump()).second) contexts.push_back(golden.at("context"));
  }
  int rendered_as_sent = 0;
  for (const NamedTemplate& chosen : shared_templates(folder)) {
    const ConversationRenderer renderer = renderer_of(chosen.source);
    for (const Json& context : contexts) {
      SCOPED_TRACE(fmt::format("{}: {}", chosen.name, context.dump()));
      const Json tools = context.value("tools", Json());
      const bool prompted = context.value("add_generation_prompt", false);
      const auto plain = renderer.chat_template().render(context.at("messages"), tools, prompted,
                                                         variables_of(context));
      const auto text =
          renderer.render(context.at("messages"), tools, prompted, variables_of(context));
      if (!plain.ok()) continue;
      EXPECT_TRUE(text.ok()) << shown(text);
      rendered_as_sent += text.ok() && *text == *plain ? 1 : 0;
    }
  }
  EXPECT_GT(rendered_as_sent, 1000);
}

}  // namespace
}  // namespace heddle::chat
