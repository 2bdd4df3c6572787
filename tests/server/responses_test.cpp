// SPDX-License-Identifier: Apache-2.0
// OpenAI's Responses API.
#include "server/responses.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/formats.h"
#include "server/delta_adapter.h"
#include "server/response_store.h"
#include "server/responses_answer.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Checks the numbers of the events and that each names its type twice.
std::vector<Json> numbered_events(std::string_view stream) {
  std::vector<Json> events;
  for (size_t end; (end = stream.find("\n\n")) != std::string_view::npos;
       stream.remove_prefix(end + 2)) {
    const std::string_view event = stream.substr(0, end);
    const size_t line_end = std::min(event.find('\n'), event.size());
    events.push_back(Json::parse(event.substr(std::min(line_end + 7, event.size())), nullptr,
                                 /*allow_exceptions=*/false));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), event.substr(0, line_end));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  EXPECT_TRUE(stream.empty());
  return events;
}

std::vector<std::string> names_of(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event["type"]);
  return names;
}

class ResponsesTest : public ServerTest {
 protected:
  [[nodiscard]] std::string last_prompt() const {
    const std::vector<Request> requests = engine->submitted();
    std::string text;
    for (const TokenId token : requests.back().prompt) text += static_cast<char>(token);
    return text;
  }
};

TEST_F(ResponsesTest, AnswersWithItems) {
  start();
  const Reply reply =
      post("/v1/responses", {{"model", "m"}, {"input", "Hi"}, {"instructions", "Be brief."}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json body = reply.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["type"], "message");
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hello there");
  EXPECT_EQ(body["instructions"], "Be brief.");
  // OpenAI's schema of a Response requires these.
  for (const char* name : {"id", "object", "created_at", "error", "incomplete_details",
                           "instructions", "model", "tools", "output", "parallel_tool_calls",
                           "metadata", "tool_choice", "temperature", "top_p"}) {
    EXPECT_TRUE(body.contains(name)) << name;
  }
  EXPECT_EQ(last_prompt(), "system: Be brief.|user: Hi|assistant: ");
}

TEST_F(ResponsesTest, TheStreamTellsEveryItemToItsEnd) {
  start();
  const Reply reply = post("/v1/responses", {{"input", "Hi"}, {"stream", true}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::vector<Json> events = numbered_events(reply.body);
  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[6]["text"], "Hello there");
  EXPECT_EQ(events[4]["item_id"], events[2]["item"]["id"]);
  EXPECT_EQ(events[9]["response"]["output"][0], events[8]["item"]);
  EXPECT_EQ(events[9]["response"]["status"], "completed");
}

TEST_F(ResponsesTest, AnAnswerThatIsCutOffIsIncomplete) {
  engine->script = [](const Request&) {
    return answer_events({"Hel"}, finish_of(FinishReason::kLength));
  };
  start();
  const Json body = post("/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 1}}).json();
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(engine->submitted()[0].stop.max_new_tokens, 1);
}

TEST_F(ResponsesTest, ItemsBecomeTheMessagesOfAChat) {
  start();
  const Json input = {
      {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "a"}}}}},
      {{"type", "reasoning"}, {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"q\":1}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "42"}}};
  EXPECT_EQ(post("/v1/responses", {{"input", input}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr("user: a|assistant: "));
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"f","arguments":{"q":1})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: 42|assistant: "));
}

TEST_F(ResponsesTest, ItemsThatOtherToolsLeftAreNoErrors) {
  start();
  const Json input = {
      {{"role", "user"}, {"content", "a"}},
      {{"type", "web_search_call"},
       {"id", "ws_1"},
       {"status", "completed"},
       {"action", {{"type", "search"}, {"query", "loom"}}}},
      {{"type", "mcp_list_tools"}, {"id", "m"}, {"tools", Json::array()}},
      {{"role", "assistant"}, {"content", {{{"type", "output_text"}, {"text", "Found."}}}}},
      {{"type", "custom_tool_call"},
       {"call_id", "c1"},
       {"name", "apply_patch"},
       {"input", "*** x"}},
      {{"type", "custom_tool_call_output"}, {"call_id", "c1"}, {"output", "done"}},
      {{"type", "local_shell_call"}, {"call_id", "c2"}, {"action", {{"command", {"ls"}}}}},
      {{"type", "local_shell_call_output"}, {"call_id", "c2"}, {"output", "a.txt"}},
      {{"type", "function_call"}, {"call_id", "c3"}, {"name", "look"}, {"arguments", "{}"}},
      {{"type", "function_call_output"},
       {"call_id", "c3"},
       {"output", Json::array({{{"type", "input_image"}, {"image_url", "data:x"}}})}}};
  const Reply reply = post("/v1/responses", {{"input", input}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(last_prompt(),
              HasSubstr(R"([web_search_call: {"action":{"type":"search","query":"loom"}}])"
                        "\nFound."));
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"apply_patch","arguments":{"input":"*** x"})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: done|"));
  EXPECT_THAT(last_prompt(),
              HasSubstr(R"("name":"local_shell","arguments":{"action":{"command":["ls"]}})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: [input_image]|"));
}

TEST_F(ResponsesTest, ATurnThatEndsWithoutAnAnswerKeepsItsCalls) {
  start();
  const Json note = {{"type", "web_search_call"}, {"action", {{"query", "loom"}}}};
  const Json thought = {{"type", "reasoning"}, {"content", "first"}};
  const Json input = {{{"role", "user"}, {"content", "a"}},
                      thought,
                      note,
                      {{"role", "user"}, {"content", "b"}},
                      {{"role", "assistant"}, {"content", "c"}},
                      {{"role", "user"}, {"content", "d"}},
                      note};
  EXPECT_EQ(post("/v1/responses", {{"input", input}}).status, 200);
  const std::string shown = R"([web_search_call: {"action":{"query":"loom"}}])";
  EXPECT_THAT(last_prompt(), HasSubstr("user: a|assistant: " + shown));
  EXPECT_THAT(last_prompt(), HasSubstr("user: b|assistant: c|user: d|assistant: " + shown));
}

TEST_F(ResponsesTest, AResponseIsForgottenWhenItIsDeleted) {
  start();
  const std::string path =
      "/v1/responses/" + post("/v1/responses", {{"input", "Hi"}}).json()["id"].get<std::string>();
  const Reply deleted = connect().call("DELETE", path);
  EXPECT_EQ(deleted.status, 200) << deleted.body;
  EXPECT_EQ(deleted.json()["deleted"], true);
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(connect().call("DELETE", path).status, 404);
}

TEST_F(ResponsesTest, AResponseIsKeptAndGoneOnFrom) {
  start();
  const std::string id =
      post("/v1/responses", {{"input", "Hi"}, {"instructions", "x"}}).json()["id"];
  EXPECT_EQ(get("/v1/responses/" + id).json()["output"][0]["content"][0]["text"], "Hello there");
  EXPECT_EQ(post("/v1/responses", {{"input", "And?"}, {"previous_response_id", id}}).status, 200);
  EXPECT_EQ(last_prompt(), "user: Hi|assistant: Hello there|user: And?|assistant: ");
  const Reply cancelled = post("/v1/responses/" + id + "/cancel", Json::object());
  EXPECT_EQ(cancelled.status, 400);

  const std::string forgotten =
      post("/v1/responses", {{"input", "Hi"}, {"store", false}}).json()["id"];
  const Reply missing = get("/v1/responses/" + forgotten);
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(error_of(missing)["code"], "response_not_found");
  EXPECT_EQ(post("/v1/responses", {{"input", "x"}, {"previous_response_id", "resp_no"}}).status,
            404);
}

TEST_F(ResponsesTest, CallsOfOneHeaderAreResponsesOfTheirOwn) {
  engine->script = [](const Request& request) {
    return answer_events({request.prompt[6] == 'a' ? "first" : "second"});
  };
  engine->held = true;
  start();
  std::deque<HttpClient> clients;
  for (const char* input : {"a", "b", "a"}) {
    if (clients.size() == 2) {  // the first two run at the same time, the last one after them
      engine->held = false;
      EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
    }
    clients.emplace_back(server->port())
        .send_request("POST", "/v1/responses", Json{{"input", input}}.dump(),
                      "x-request-id: trace\r\n");
    if (clients.size() < 3) {
      EXPECT_TRUE(eventually([&] { return engine->num_live() == clients.size(); }));
    }
  }
  std::vector<std::string> ids;
  for (HttpClient& client : clients) {
    const Reply reply = client.read_reply();
    ASSERT_EQ(reply.status, 200) << reply.body;
    ids.push_back(reply.json()["id"]);
    EXPECT_EQ(reply.headers.at("x-request-id"), ids.back());
  }
  EXPECT_EQ(ids[0], "trace");
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 3u);
  EXPECT_EQ(get("/v1/responses/" + ids[2]).status, 200);
  const Json next = {{"input", "c"}, {"previous_response_id", ids[1]}};
  EXPECT_EQ(post("/v1/responses", next).status, 200);
  EXPECT_EQ(last_prompt(), "user: b|assistant: second|user: c|assistant: ");
}

TEST_F(ResponsesTest, AnIdOfTheCallersIsGivenOnce) {
  start();
  const Json body = {{"input", "Hi"}, {"rid", "mine"}};
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  EXPECT_EQ(post("/v1/responses", body).status, 503);
  engine->set_refuse(nullptr);
  EXPECT_EQ(post("/v1/responses", body).status, 200) << "what was refused is not kept";
  const Reply again = post("/v1/responses", body);
  EXPECT_EQ(again.status, 400);
  EXPECT_EQ(error_of(again)["param"], "rid");
  Json forgotten = body;
  forgotten["store"] = false;
  EXPECT_EQ(post("/v1/responses", forgotten).status, 200) << "there is nothing to ask for";
  EXPECT_EQ(connect().call("DELETE", "/v1/responses/mine").status, 200);
  EXPECT_EQ(post("/v1/responses", body).status, 200);
}

TEST_F(ResponsesTest, GoingOnByIdGivesThePromptOfAllItems) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  const std::vector<std::vector<std::string>> answers = {
      {"<think>", "Hm.", "</think>", "So."},
      {"<think>Cut"},
      {"<think>Call.</think>Wait.",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"}};
  const std::vector<std::string> shown = {
      "assistant: So.(Hm.)|user: And?", "assistant: (Cut)|user: And?", "assistant: Wait.(Call.)[{"};
  std::atomic<size_t> which = 0;
  engine->script = [&](const Request&) { return answer_events(answers[which]); };
  start();
  const Json tools =
      Json::parse(R"([{"type": "function", "name": "f", "parameters": {"type": "object"}}])");
  for (; which < answers.size(); ++which) {
    const Json first = post("/v1/responses", {{"input", "Hi"}, {"tools", tools}}).json();
    Json next = {{"input", "And?"}, {"previous_response_id", first["id"]}, {"tools", tools}};
    ASSERT_EQ(post("/v1/responses", next).status, 200);
    const std::string by_id = last_prompt();
    Json items = Json::array({{{"role", "user"}, {"content", "Hi"}}});
    items.insert(items.end(), first["output"].begin(), first["output"].end());
    items.push_back({{"role", "user"}, {"content", "And?"}});
    ASSERT_EQ(post("/v1/responses", {{"input", items}, {"tools", tools}}).status, 200);
    EXPECT_EQ(by_id, last_prompt());
    EXPECT_THAT(by_id, HasSubstr(shown[which]));
  }
}

TEST_F(ResponsesTest, ListsTheItemsThatAResponseAnswered) {
  start();
  const std::string first = post("/v1/responses", {{"input", "Hi"}}).json()["id"];
  const Json call = {{"type", "function_call"},
                     {"id", "fc_mine"},
                     {"call_id", "c"},
                     {"name", "f"},
                     {"arguments", "{}"}};
  const Json output = {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "42"}};
  const std::string second =
      post("/v1/responses", {{"input", {call, output}}, {"previous_response_id", first}})
          .json()["id"];
  const auto page = [&](const std::string& query) {
    const Reply reply = get("/v1/responses/" + second + "/input_items" + query);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  };
  const Json all = page("?order=asc");
  EXPECT_EQ(all["object"], "list");
  EXPECT_EQ(all["has_more"], false);
  const Json data = all["data"];
  ASSERT_EQ(data.size(), 4u) << data;
  EXPECT_EQ(data[0]["role"], "user");
  EXPECT_EQ(data[0]["content"], Json::parse(R"([{"type": "input_text", "text": "Hi"}])"));
  EXPECT_EQ(data[1], get("/v1/responses/" + first).json()["output"][0]) << "the answer between";
  EXPECT_EQ(data[2], call);
  EXPECT_EQ(data[3]["output"], "42");
  std::set<std::string> ids;
  for (const Json& item : data) ids.insert(item["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(all["first_id"], data[0]["id"]);
  EXPECT_EQ(all["last_id"], data[3]["id"]);

  const Json newest = page("?limit=1");
  EXPECT_EQ(newest["data"], Json::array({data[3]}));
  EXPECT_EQ(newest["has_more"], true);
  const Json rest = page("?after=" + newest["last_id"].get<std::string>());
  EXPECT_EQ(rest["data"], Json::array({data[2], data[1], data[0]}));
  const std::string path = "/v1/responses/" + second + "/input_items";
  for (const char* const name : {"limit", "order", "after"}) {
    EXPECT_EQ(error_of(get(path + "?" + name + "=x"))["param"], name);
  }
  EXPECT_EQ(error_of(get("/v1/responses/resp_no/input_items"))["code"], "response_not_found");
}

TEST_F(ResponsesTest, ItemsThatAResponseWroteAreReferredTo) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  engine->script = [](const Request&) { return answer_events({"<think>Hm.</think>So."}); };
  start();
  for (const char* const id : {"", "my_own"}) {
    Json body = {{"input", "Hi"}};
    if (*id != '\0') body["rid"] = id;
    const Json output = post("/v1/responses", body).json()["output"];
    ASSERT_EQ(output.size(), 2u);
    Json items = Json::array({{{"role", "user"}, {"content", "Hi"}}});
    for (const Json& item : output) {
      items.push_back({{"type", "item_reference"}, {"id", item["id"]}});
    }
    items.push_back({{"role", "user"}, {"content", "And?"}});
    const Reply reply = post("/v1/responses", {{"input", items}});
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(last_prompt(), "user: Hi|assistant: So.(Hm.)|user: And?|assistant: ");
    items.push_back(items[1]);
    const Reply twice = post("/v1/responses", {{"input", items}});
    EXPECT_EQ(twice.status, 400) << "what is sent bounds the prompt";
    EXPECT_EQ(error_of(twice)["param"], "input[4].id");
  }
  for (const char* const id : {"x", "_", "msg_my_own", "msg_my_own_", "msg_my_own_2", "rs_my_own_1",
                               "msg_my_own_99999999999999999999"}) {
    const Reply unknown =
        post("/v1/responses", {{"input", {{{"type", "item_reference"}, {"id", id}}}}});
    EXPECT_EQ(unknown.status, 404) << id;
    EXPECT_EQ(error_of(unknown)["param"], "input[0].id");
  }
}

TEST_F(ResponsesTest, NamesTheFieldAtFault) {
  start();
  const auto param_of = [this](const Json& body) {
    const Reply reply = post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return error_of(reply)["param"];
  };
  EXPECT_EQ(param_of(Json::object()), "input");
  EXPECT_EQ(param_of({{"input", 3}}), "input");
  EXPECT_EQ(param_of({{"input", Json::array()}}), "input");
  EXPECT_EQ(param_of({{"input", Json::array({3})}}), "input[0]");
  EXPECT_EQ(param_of({{"input", {{{"type", "item_reference"}}}}}), "input[0].id");
  EXPECT_EQ(param_of({{"input", {{{"role", "user"}}}}}), "input[0].content");
  EXPECT_EQ(param_of({{"input", {{{"type", "function_call"}, {"name", "f"}}}}}),
            "input[0].call_id");
  EXPECT_EQ(param_of({{"input", "x"}, {"max_output_tokens", 0}}), "max_output_tokens");
  EXPECT_EQ(param_of({{"input", "x"}, {"tools", {{{"type", "function"}}}}}), "tools[0].name");
  EXPECT_EQ(param_of({{"input", "x"}, {"tool_choice", {{"type", "x"}}}}), "tool_choice");
  EXPECT_EQ(param_of({{"input", "x"}, {"temperature", -1}}), "temperature");
  EXPECT_EQ(param_of({{"input", "x"}, {"reasoning", {{"max_tokens", -1}}}}),
            "reasoning.max_tokens");
  EXPECT_EQ(param_of({{"input", "x"}, {"reasoning", {{"effort", "bad"}}}}), "reasoning.effort");
  EXPECT_EQ(param_of({{"input", "x"}, {"metadata", {{"a", 1}}}}), "metadata");
  EXPECT_EQ(param_of({{"input", "x"}, {"background", true}, {"store", false}}), "background");
  EXPECT_EQ(param_of({{"input", "x"}, {"background", true}, {"stream", true}}), "background");
}

TEST_F(ResponsesTest, RefusesStateThatItDoesNotKeep) {
  start();
  const auto refusal = [this](const Json& more) {
    Json body = {{"input", "x"}};
    body.update(more);
    const Reply reply = post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json error = error_of(reply);
    EXPECT_EQ(error["param"], more.begin().key());
    EXPECT_EQ(error["code"], "unsupported_parameter");
    return error["message"].get<std::string>();
  };
  EXPECT_THAT(refusal({{"conversation", "conv_1"}}), HasSubstr("`previous_response_id`"));
  EXPECT_THAT(refusal({{"conversation", {{"id", "conv_1"}}}}), HasSubstr("`input`"));
  EXPECT_THAT(refusal({{"prompt", {{"id", "pmpt_1"}}}}), HasSubstr("`instructions`"));
  const Reply unknown = post("/v1/responses", {{"input", "x"}, {"truncation", "some"}});
  EXPECT_EQ(error_of(unknown)["code"], "invalid_value");
  for (const char* const accepted : {"disabled", "auto"}) {
    const Json body = post("/v1/responses", {{"input", "x"}, {"truncation", accepted}}).json();
    EXPECT_EQ(body["truncation"], "disabled") << "nothing is dropped";
  }
}

TEST_F(ResponsesTest, TheLimitOfTheAnswerHasThreeNames) {
  start();
  for (const char* name : {"max_output_tokens", "max_completion_tokens", "max_tokens"}) {
    EXPECT_EQ(post("/v1/responses", {{"input", "x"}, {name, 7}}).json()["max_output_tokens"], 7);
    EXPECT_EQ(engine->submitted().back().stop.max_new_tokens, 7) << name;
    EXPECT_EQ(error_of(post("/v1/responses", {{"input", "x"}, {name, 0}}))["param"], name);
  }
  const Json all = {
      {"input", "x"}, {"max_tokens", 3}, {"max_completion_tokens", 4}, {"max_output_tokens", 5}};
  EXPECT_EQ(post("/v1/responses", all).json()["max_output_tokens"], 5);
  EXPECT_EQ(engine->submitted().back().stop.max_new_tokens, 5);
}

TEST_F(ResponsesTest, AnErrorOfTheContextNamesTheFieldThatWasSent) {
  engine->mutable_model_info().context_length = 100;
  start();
  for (const char* name : {"max_output_tokens", "max_completion_tokens", "max_tokens"}) {
    const Json error = error_of(post("/v1/responses", {{"input", "x"}, {name, 1000}}));
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], name);
    const Json few =
        error_of(post("/v1/responses", {{"input", "x"}, {name, 3}, {"min_tokens", 4}}));
    EXPECT_EQ(few["message"], fmt::format("`min_tokens` is 4, more than `{}` = 3.", name));
  }
  const Json error = error_of(post("/v1/responses", {{"input", std::string(101, 'x')}}));
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "input");
}

TEST_F(ResponsesTest, ShowsTheLogprobsOfItsText) {
  engine->script = [](const Request& request) {
    EXPECT_TRUE(request.return_logprobs);
    EXPECT_EQ(request.top_logprobs, 2);
    std::vector<RequestEvent> events = answer_events({"He", "y"});
    for (RequestEvent& event : events) {
      for (const TokenId token : event.tokens) {
        event.logprobs.push_back({.token = token, .logprob = -0.5f, .top = {{token, -0.5f}}});
      }
    }
    return events;
  };
  start();
  const Json asked = {{"input", "Hi"}, {"top_logprobs", 2}};
  const Json body = post("/v1/responses", asked).json();
  EXPECT_EQ(body["top_logprobs"], 2);
  const Json logprobs = body["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 2u) << "those of the text, not of the end token: " << body;
  EXPECT_EQ(logprobs[0]["logprob"], -0.5);
  EXPECT_TRUE(logprobs[0].contains("token") && logprobs[0].contains("bytes"));
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["logprob"], -0.5);

  Json streamed = asked;
  streamed["stream"] = true;
  const std::vector<Json> events = numbered_events(post("/v1/responses", streamed).body);
  ASSERT_EQ(events.size(), 10u);
  EXPECT_EQ(events[4]["logprobs"], Json::array({logprobs[0]}));
  EXPECT_EQ(events[5]["logprobs"], Json::array({logprobs[1]}));
  EXPECT_EQ(events[6]["logprobs"], logprobs) << events[6];
  EXPECT_EQ(events[7]["part"]["logprobs"], logprobs) << events[7];
  EXPECT_EQ(events[9]["response"]["output"][0]["content"][0]["logprobs"], logprobs);
}

TEST_F(ResponsesTest, LogprobsAreAskedForByIncludeToo) {
  engine->script = [](const Request& request) {
    return answer_events({request.return_logprobs ? "with" : "without"});
  };
  engine->mutable_model_info().context_length = int64_t{1} << 20;
  start();
  const auto text_of = [this](const Json& more) {
    Json body = {{"input", "Hi"}};
    body.update(more);
    return post("/v1/responses", body).json()["output"][0]["content"][0]["text"];
  };
  EXPECT_EQ(text_of({{"include", {"message.output_text.logprobs"}}}), "with");
  EXPECT_EQ(text_of({{"include", {"reasoning.encrypted_content"}}, {"top_logprobs", 0}}),
            "without");
  const Reply many = post("/v1/responses", {{"input", "Hi"}, {"top_logprobs", 21}});
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(error_of(many)["param"], "top_logprobs");
  const Reply long_one = post("/v1/responses", {{"input", "Hi"}, {"top_logprobs", 20}});
  EXPECT_EQ(long_one.status, 400);
  EXPECT_EQ(error_of(long_one)["param"], "max_output_tokens");
}

TEST_F(ResponsesTest, BoundsThePartOfTheRequestThatAResponseRepeats) {
  start();
  Json body = {{"input", "x"}, {"tools", Json::array()}};
  body["tools"].push_back({{"type", "web_search"}, {"x", std::string(kMaxRepeatedBytes, 'x')}});
  const Reply reply = post("/v1/responses", body);
  EXPECT_EQ(reply.status, 413) << reply.body;
  EXPECT_EQ(error_of(reply)["code"], "request_too_large");
}

TEST(WithStateTest, OnlyTheStateOfAResponseChanges) {
  const Json running = {{"id", "r"},        {"status", "in_progress"},
                        {"error", nullptr}, {"incomplete_details", nullptr},
                        {"output", {}},     {"instructions", R"("status":"x","error":1)"}};
  const Json error = {{"message", R"(,"incomplete_details":)"}};
  const std::string failed = with_state(running.dump(), "failed", error);
  Json expected = running;
  expected["status"] = "failed";
  expected["error"] = error;
  EXPECT_EQ(failed, expected.dump());
  expected["status"] = "cancelled";
  expected["error"] = nullptr;
  EXPECT_EQ(with_state(failed, "cancelled"), expected.dump());
}

class BackgroundTest : public ResponsesTest {
 protected:
  // The response once it has ended.
  [[nodiscard]] Json ended(const std::string& id) const {
    Json response;
    EXPECT_TRUE(eventually([&] {
      response = get("/v1/responses/" + id).json();
      return response["status"] != "in_progress";
    }));
    return response;
  }
};

TEST_F(BackgroundTest, AResponseIsFetchedByItsIdWhenItHasEnded) {
  engine->held = true;
  start();
  const Reply queued = post("/v1/responses", {{"input", "Hi"}, {"background", true}});
  ASSERT_EQ(queued.status, 200) << queued.body;
  EXPECT_EQ(queued.json()["status"], "queued");
  EXPECT_EQ(queued.json()["background"], true);
  EXPECT_EQ(queued.json()["output"], Json::array());
  const std::string id = queued.json()["id"];
  EXPECT_EQ(get("/v1/responses/" + id).json()["status"], "in_progress");
  const Reply early = post("/v1/responses", {{"input", "And?"}, {"previous_response_id", id}});
  EXPECT_EQ(early.status, 400);
  EXPECT_EQ(error_of(early)["param"], "previous_response_id");
  engine->held = false;
  const Json response = ended(id);
  EXPECT_EQ(response["id"], id);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hello there");
  EXPECT_EQ(post("/v1/responses", {{"input", "And?"}, {"previous_response_id", id}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr("assistant: Hello there|user: And?"));
  const Reply late = post("/v1/responses/" + id + "/cancel", Json::object());
  EXPECT_EQ(late.status, 400) << "it has ended";
}

TEST_F(BackgroundTest, AResponseThatRunsIsCancelled) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"On and on. "});
    events.pop_back();  // without an end
    return events;
  };
  start();
  const std::string id =
      post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json()["id"];
  const Reply cancelled = post("/v1/responses/" + id + "/cancel", Json::object());
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(cancelled.json()["status"], "cancelled");
  // The engine's own end takes the place of what the route has shown.
  Json response;
  EXPECT_TRUE(eventually([&] {
    response = get("/v1/responses/" + id).json();
    return response.contains("usage");
  }));
  EXPECT_EQ(response["status"], "cancelled");
  EXPECT_EQ(engine->num_live(), 0u);
}

TEST_F(BackgroundTest, AnIdNamesOneResponse) {
  engine->held = true;
  start();
  const std::string body = Json{{"input", "Hi"}, {"background", true}}.dump();
  std::deque<HttpClient> clients;
  codec_gate->closed = true;  // the first two are read at the same time
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port())
        .send_request("POST", "/v1/responses", body, "x-request-id: mine\r\n");
    if (i == 1) {
      EXPECT_TRUE(eventually([this] { return codec_gate->num_waiting == 2; }));
      codec_gate->closed = false;
    }
  }
  std::set<std::string> ids;
  for (HttpClient& client : clients) {
    const Reply queued = client.read_reply();
    ASSERT_EQ(queued.status, 200) << queued.body;
    ids.insert(queued.json()["id"].get<std::string>());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(ids.contains("mine"));

  const Json named = {{"input", "Hi"}, {"background", true}, {"rid", "job1"}};
  const Reply job = post("/v1/responses", named);
  EXPECT_EQ(job.status, 200) << job.body;
  EXPECT_EQ(job.headers.at("x-request-id"), "job1");
  const Reply runs = post("/v1/responses", named);
  EXPECT_EQ(runs.status, 400) << runs.body;
  EXPECT_EQ(error_of(runs)["param"], "rid");
  engine->held = false;
  for (const std::string& id : ids) EXPECT_EQ(ended(id)["status"], "completed");
  EXPECT_EQ(ended("job1")["status"], "completed");
  EXPECT_EQ(post("/v1/responses", named).status, 400) << "it is kept";
}

TEST_F(BackgroundTest, ReportsFailedAndRefusedResponses) {
  engine->script = [](const Request&) {
    return answer_events({}, finish_of(FinishReason::kError, internal_error("secret")));
  };
  start();
  const std::string id =
      post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json()["id"];
  const Json failed = ended(id);
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"]["code"], "internal_error");
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  const Reply refused = post("/v1/responses", {{"input", "Hi"}, {"background", true}});
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(error_of(refused)["code"], "queue_full");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
}

TEST_F(BackgroundTest, ItsClientMayLeave) {
  engine->held = true;
  start();
  std::string id;
  {
    HttpClient client = connect();
    id = client.post("/v1/responses", Json{{"input", "Hi"}, {"background", true}}).json()["id"];
    client.close();
  }
  engine->held = false;
  EXPECT_EQ(ended(id)["status"], "completed");
}

TEST_F(ResponsesTest, AStreamThatFailsSaysSo) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello"});
    events.back().finish = finish_of(FinishReason::kError, internal_error("secret"));
    return events;
  };
  start();
  const std::vector<Json> events =
      numbered_events(post("/v1/responses", {{"input", "Hi"}, {"stream", true}}).body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "internal_error");
}

TEST(ResponsesAdapterTest, ReasoningTextAndCallsAreItemsOfTheirOwn) {
  ChatAnswerOptions options{{.id = "resp_1", .model = "m"}};
  options.streaming.stream = true;
  const auto adapter = make_responses_adapter(std::move(options), {.request = Json::object()});
  std::string out;
  adapter->event(0, RequestEvent{}, out);
  for (const parsers::AnswerDelta& delta : std::vector<parsers::AnswerDelta>{
           parsers::ReasoningDelta{"Let me"}, parsers::ContentDelta{"So"},
           parsers::ToolCallBegin{0, "call_1", "w"}, parsers::ArgumentsDelta{0, "{\"c\":"},
           parsers::ArgumentsDelta{0, " \"Paris\"}"}, parsers::ToolCallEnd{}}) {
    dynamic_cast<DeltaAdapter&>(*adapter).add(delta, out);
  }
  RequestEvent last;
  last.finish = stopped_by(7);
  adapter->event(0, last, out);
  adapter->end(out);
  const std::vector<Json> events = numbered_events(out);
  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.reasoning_text.delta", "response.reasoning_text.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[12]["output_index"], 2);
  EXPECT_EQ(events[12]["item"]["arguments"], "");
  EXPECT_EQ(events[15]["arguments"], "{\"c\": \"Paris\"}");
  EXPECT_EQ(events[15]["item_id"], events[12]["item"]["id"]);
  const Json& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["content"][0]["text"], "Let me");
  EXPECT_EQ(output[2]["call_id"], "call_1");
}

TEST(ResponseStoreTest, KeepsTheNewestOfEachHolderForAnHour) {
  int64_t now = 1000;
  ResponseStore store([&now] { return now; });
  const auto response = [](std::string body, std::string holder) {
    return StoredResponse{.body = std::move(body), .holder = std::move(holder)};
  };
  store.put("a", response("1", "me"));
  ASSERT_NE(store.find("a", "me"), nullptr);
  EXPECT_EQ(store.find("a", "me")->body, "1");
  EXPECT_EQ(store.find("a", "you"), nullptr);
  store.put("a", response("2", "me"));
  EXPECT_EQ(store.find("a", "me")->body, "1") << "an id is given once";
  StoredResponse running = response("runs", "me");
  running.is_running = true;
  store.put("b", running);
  store.put("b", response("of another call", "me"));
  store.replace("b", response("of another key", "you"));
  EXPECT_EQ(store.find("b", "me")->body, "runs");
  store.replace("b", response("ended", "me"));
  EXPECT_EQ(store.find("b", "me")->body, "ended") << "what it came to takes its place";
  EXPECT_EQ(store.find("b", "you")->body, "of another key");
  EXPECT_EQ(store.size(), 3u);
  store.put("c", running);
  now += ResponseStore::kMaxAgeSeconds + 1;
  EXPECT_EQ(store.find("a", "me"), nullptr);
  EXPECT_NE(store.find("c", "me"), nullptr) << "it runs";
  store.replace("c", response("ended", "me"));
  now += ResponseStore::kMaxAgeSeconds;
  EXPECT_NE(store.find("c", "me"), nullptr) << "its hour begins at its end";
  for (size_t i = 0; i < ResponseStore::kMaxResponses; ++i) {
    store.put(std::to_string(i), response("x", ""));
  }
  EXPECT_EQ(store.size(), ResponseStore::kMaxResponses);
  EXPECT_EQ(store.find("a", "me"), nullptr);
  store.put("large", response(std::string(ResponseStore::kMaxBytes, 'x'), ""));
  EXPECT_EQ(store.size(), 1u);
  store.put("input", {.body = "1", .input_bytes = ResponseStore::kMaxBytes - 1, .holder = ""});
  EXPECT_EQ(store.size(), 1u) << "its input is kept, too";
  EXPECT_EQ(store.find("large", ""), nullptr);
}

TEST(ResponseStoreTest, AnIdIsClaimedOnceByEachHolder) {
  int64_t now = 1000;
  const auto store = std::make_shared<ResponseStore>([&now] { return now; });
  auto mine = ResponseStore::claim(store, "a", "me");
  EXPECT_NE(mine, nullptr);
  EXPECT_EQ(ResponseStore::claim(store, "a", "me"), nullptr);
  EXPECT_NE(ResponseStore::claim(store, "a", "you"), nullptr);
  mine.reset();
  mine = ResponseStore::claim(store, "a", "me");
  EXPECT_NE(mine, nullptr);
  store->put("a", {.body = "1", .holder = "me"});
  mine.reset();
  EXPECT_EQ(ResponseStore::claim(store, "a", "me"), nullptr) << "it is kept";
  now += ResponseStore::kMaxAgeSeconds + 1;
  EXPECT_NE(ResponseStore::claim(store, "a", "me"), nullptr);
}

}  // namespace
}  // namespace heddle::server
