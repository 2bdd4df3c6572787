// SPDX-License-Identifier: Apache-2.0
// Responses that are kept: fetched and deleted, gone on from, their ids and their items.
#include <atomic>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/formats.h"
#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class KeptResponsesTest : public ResponsesFixture {};

TEST_F(KeptResponsesTest, AResponseIsForgottenWhenItIsDeleted) {
  start();
  const std::string path =
      "/v1/responses/" + post("/v1/responses", {{"input", "Hi"}}).json()["id"].get<std::string>();
  const Reply deleted = connect().call("DELETE", path);
  EXPECT_EQ(deleted.status, 200) << deleted.body;
  EXPECT_EQ(deleted.json()["deleted"], true);
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(connect().call("DELETE", path).status, 404);
}

TEST_F(KeptResponsesTest, AResponseIsKeptAndGoneOnFrom) {
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

// The events of a stream, each without the obligatory name before it.
std::vector<Json> events_of(std::string_view stream) {
  std::vector<Json> events;
  for (size_t end; (end = stream.find("\n\n")) != std::string_view::npos;
       stream.remove_prefix(end + 2)) {
    const size_t line_end = stream.find('\n');
    events.push_back(Json::parse(stream.substr(line_end + 7, end - line_end - 7)));
  }
  return events;
}

TEST_F(KeptResponsesTest, AStreamIsRepeatedEventByEvent) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  engine->script = [](const Request& request) {
    std::vector<RequestEvent> events =
        answer_events({"<think>H", "m</think>", "So", " it is", "<tool_call>\n{\"name\": \"f\", ",
                       "\"arguments\": {\"input", "\": \"a", "b\"}}\n</tool_call>"});
    for (RequestEvent& event : events) {
      if (!request.return_logprobs) continue;
      for (const TokenId token : event.tokens) event.logprobs.push_back({token, -0.5f, {}});
    }
    return events;
  };
  start();
  for (const Json& more : {Json{{"tools", {{{"type", "function"}, {"name", "f"}}}}},
                           Json{{"tools", {{{"type", "custom"}, {"name", "f"}}}}},
                           Json{{"include", {"message.output_text.logprobs"}}}}) {
    Json body = {{"input", "Hi"}, {"stream", true}};
    body.update(more);
    const std::vector<Json> events = events_of(post("/v1/responses", body).body);
    ASSERT_GT(events.size(), 8u);
    const std::string path =
        "/v1/responses/" + events.back()["response"]["id"].get<std::string>() + "?stream=true";
    const Reply repeated = get(path);
    EXPECT_EQ(repeated.headers.at("content-type").substr(0, 17), "text/event-stream");
    EXPECT_EQ(events_of(repeated.body), events);
    for (const size_t after : {size_t{0}, size_t{1}, size_t{5}, events.size() - 1}) {
      const std::vector<Json> rest(events.begin() + static_cast<std::ptrdiff_t>(after) + 1,
                                   events.end());
      EXPECT_EQ(events_of(get(path + "&starting_after=" + std::to_string(after)).body), rest);
    }
  }
}

TEST_F(KeptResponsesTest, AWholeAnswerIsStreamedToo) {
  engine->script = [](const Request&) {
    return answer_events({"Hel", "lo"}, finish_of(FinishReason::kLength));
  };
  start();
  const Json whole = post("/v1/responses", {{"input", "Hi"}}).json();
  const std::string path = "/v1/responses/" + whole["id"].get<std::string>() + "?stream=true";
  const std::vector<Json> events = events_of(get(path).body);
  ASSERT_EQ(events.size(), 9u);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[4]["delta"], "Hello") << "one for the text";
  EXPECT_EQ(events[8]["type"], "response.incomplete");
  EXPECT_EQ(events[8]["response"], whole);
  EXPECT_EQ(error_of(get(path + "&starting_after=x"))["param"], "starting_after");
  EXPECT_EQ(get("/v1/responses/resp_no?stream=true").status, 404);
  EXPECT_EQ(get("/v1/responses/" + whole["id"].get<std::string>() + "?stream=false").json(), whole);
}

TEST_F(KeptResponsesTest, CallsOfOneHeaderAreResponsesOfTheirOwn) {
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

TEST_F(KeptResponsesTest, AnIdOfTheCallersIsGivenOnce) {
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

TEST_F(KeptResponsesTest, GoingOnByIdGivesThePromptOfAllItems) {
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

TEST_F(KeptResponsesTest, ListsTheItemsThatAResponseAnswered) {
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
  Json shown = call;
  shown["status"] = "completed";
  EXPECT_EQ(data[2], shown);
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

TEST_F(KeptResponsesTest, ItemsThatAResponseWroteAreReferredTo) {
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

}  // namespace
}  // namespace heddle::server
