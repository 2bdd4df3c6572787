// SPDX-License-Identifier: Apache-2.0
// Files and batches over HTTP, with the engine's place for one request of a batch at a time.
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>

#include "server/batch/batch_input.h"
#include "server/batch/batch_runner.h"
#include "server/openapi_schema.h"
#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class BatchTest : public ServerTest {
 protected:
  static std::string form(std::string_view content, std::string_view purpose = "batch") {
    return fmt::format(
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{}\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{}\r\n"
        "--b--\r\n",
        purpose, content);
  }

  [[nodiscard]] Reply upload(std::string_view body, std::string_view headers = {}) const {
    return connect().call(
        "POST", "/v1/files", body,
        fmt::format("Content-Type: multipart/form-data; boundary=b\r\n{}", headers));
  }

  [[nodiscard]] std::string upload_id(std::string_view content) const {
    const Reply reply = upload(form(content));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["id"];
  }

  static std::string line(std::string_view id, const Json& body) {
    return Json{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}
               .dump() +
           "\n";
  }

  [[nodiscard]] Reply create(const std::string& file,
                             std::string_view endpoint = "/v1/completions") const {
    return post("/v1/batches",
                {{"input_file_id", file}, {"endpoint", endpoint}, {"completion_window", "24h"}});
  }

  [[nodiscard]] Json show(const std::string& id) const { return get("/v1/batches/" + id).json(); }

  // The batch once it has ended.
  [[nodiscard]] Json wait_for(const std::string& id) const {
    Json batch;
    EXPECT_TRUE(eventually([&] {
      batch = show(id);
      const std::string status = batch.value("status", "");
      return status == "completed" || status == "failed" || status == "cancelled" ||
             status == "expired";
    })) << batch.dump();
    return batch;
  }

  // The lines of a file, by their custom ids.
  [[nodiscard]] std::map<std::string, Json> lines_of(const std::string& file) const {
    std::map<std::string, Json> lines;
    std::istringstream text(get("/v1/files/" + file + "/content").body);
    for (std::string one; std::getline(text, one);) {
      const Json json = Json::parse(one);
      EXPECT_TRUE(lines.emplace(json["custom_id"], json).second);
    }
    return lines;
  }
};

TEST_F(BatchTest, FilesAreStoredListedReadAndDeleted) {
  start();
  const std::string first = upload_id("one");
  const std::string second = upload_id("two\r\n");
  const Json file = get("/v1/files/" + first).json();
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["filename"], "in.jsonl");
  EXPECT_EQ(file["bytes"], 3);
  EXPECT_EQ(file["purpose"], "batch");
  const Reply content = get("/v1/files/" + second + "/content");
  EXPECT_EQ(content.body, "two\r\n");
  EXPECT_TRUE(content.complete);
  EXPECT_EQ(content.headers.at("content-type"), "application/octet-stream");
  EXPECT_EQ(get("/v1/files").json()["data"].size(), 2u);
  EXPECT_EQ(get("/v1/files?purpose=batch_output").json()["data"].size(), 0u);
  const Json page = get("/v1/files?limit=1&order=asc").json();
  EXPECT_EQ(page["has_more"], true);
  const std::string shown = page["last_id"];
  const Json rest = get("/v1/files?order=asc&after=" + shown).json();
  ASSERT_EQ(rest["data"].size(), 1u);
  EXPECT_NE(rest["first_id"], shown);
  EXPECT_EQ(connect().call("DELETE", "/v1/files/" + first).json()["deleted"], true);
  for (const char* method : {"GET", "DELETE"}) {
    const Reply gone = connect().call(method, "/v1/files/" + first);
    EXPECT_EQ(gone.status, 404);
    EXPECT_EQ(error_of(gone)["code"], "file_not_found");
  }
  EXPECT_EQ(get("/v1/files/" + first + "/content").status, 404);
}

TEST_F(BatchTest, AnUploadMustBeAFormWithAFileForABatch) {
  start();
  EXPECT_EQ(error_of(upload(form("a", "fine-tune")))["param"], "purpose");
  EXPECT_EQ(error_of(upload(form("")))["param"], "file");
  EXPECT_EQ(error_of(upload("--b--"))["param"], "file");
  EXPECT_EQ(error_of(upload("garbage"))["code"], "invalid_form");
  EXPECT_EQ(post("/v1/files", {{"a", 1}}).status, 400);
  const Reply page = upload(form("a"), "Origin: http://example.com\r\n");
  EXPECT_EQ(error_of(page)["code"], "cross_origin");
  EXPECT_EQ(error_of(get("/v1/files?limit=0"))["param"], "limit");
  EXPECT_EQ(error_of(get("/v1/files?after=x"))["param"], "after");
  EXPECT_EQ(error_of(get("/v1/files?order=x"))["param"], "order");
  EXPECT_EQ(get("/v1/files").json()["data"].size(), 0u);
}

TEST_F(BatchTest, AFullStoreRefusesFiles) {
  options.file_storage_bytes = 4;
  start();
  const Reply reply = upload(form("12345"));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(error_of(reply)["code"], "storage_full");
}

TEST_F(BatchTest, EveryRequestOfABatchIsAnswered) {
  start();
  const std::string input =
      upload_id(line("a", {{"prompt", "one"}}) + "\n" + line("b", {{"prompt", ""}, {"n", 0}}) +
                line("c", {{"prompt", "three"}, {"priority", 5}}));
  const Reply created = create(input);
  ASSERT_EQ(created.status, 200) << created.body;
  EXPECT_EQ(created.json()["status"], "validating");
  const Json batch = wait_for(created.json()["id"]);
  EXPECT_EQ(batch["status"], "completed") << batch.dump();
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 3}, {"completed", 2}, {"failed", 1}}));
  const auto output = lines_of(batch["output_file_id"]);
  ASSERT_EQ(output.size(), 2u);
  const Json& answer = output.at("a")["response"];
  EXPECT_EQ(answer["status_code"], 200);
  EXPECT_EQ(answer["body"]["choices"][0]["text"], "Hello there");
  EXPECT_EQ(answer["request_id"], answer["body"]["id"]);
  EXPECT_TRUE(output.at("a")["error"].is_null());
  const auto errors = lines_of(batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.at("b")["response"]["status_code"], 400);
  EXPECT_EQ(errors.at("b")["response"]["body"]["error"]["param"], "n");
  EXPECT_FALSE(engine->submitted()[1].priority.has_value());
}

TEST_F(BatchTest, RequestsOfABatchAreTheLeastUrgent) {
  engine->mutable_options().scheduling.enable_priority = true;
  start();
  const std::string input = upload_id(line("a", {{"prompt", "one"}, {"priority", 5}}));
  EXPECT_EQ(wait_for(create(input).json()["id"])["status"], "completed");
  EXPECT_LT(engine->submitted()[0].priority, -1000000);
}

TEST_F(BatchTest, OthersAreServedWhileABatchRuns) {
  engine->held = true;
  start();
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += line(std::to_string(i), {{"prompt", "p"}});
  const std::string id = create(upload_id(lines)).json()["id"];
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  EXPECT_EQ(show(id)["status"], "in_progress");
  HttpClient other = connect();
  other.send_request("POST", "/generate", R"({"text": "a"})");
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 2; })) << "one of each";
  engine->held = false;
  EXPECT_EQ(other.read_reply().status, 200);
  EXPECT_EQ(wait_for(id)["request_counts"]["completed"], 20);
}

TEST_F(BatchTest, AnOverloadIsWaitedOut) {
  std::atomic<int> num_refused{0};
  engine->set_refuse([&num_refused](const Request&) {
    return ++num_refused == 1 ? resource_exhausted("queue_full: 3 requests wait") : ok_status();
  });
  start();
  const Json batch = wait_for(create(upload_id(line("a", {{"prompt", "one"}}))).json()["id"]);
  EXPECT_EQ(batch["request_counts"]["completed"], 1) << batch.dump();
  EXPECT_EQ(num_refused, 2);
}

TEST_F(BatchTest, ACancelledBatchKeepsWhatWasAnswered) {
  engine->script = [](const Request& request) {
    if (request.prompt.size() == 3) return answer_events({"Hello"});
    return std::vector<RequestEvent>(1, [] {
      RequestEvent event;
      event.tokens = {1};
      event.text = "on ";
      return event;
    }());
  };
  start();
  const std::string id =
      create(upload_id(line("a", {{"prompt", "one"}}) + line("b", {{"prompt", "more"}}) +
                       line("c", {{"prompt", "one"}})))
          .json()["id"];
  ASSERT_TRUE(eventually(
      [&] { return show(id)["request_counts"]["completed"] == 1 && engine->num_live() == 1; }));
  const Json cancelled = post("/v1/batches/" + id + "/cancel", Json::object()).json();
  EXPECT_THAT(cancelled["status"].get<std::string>(), HasSubstr("cancel"));
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["status"], "cancelled");
  EXPECT_EQ(lines_of(batch["output_file_id"]).size(), 1u);
  const auto errors = lines_of(batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_TRUE(errors.at("b")["response"].is_null());
  EXPECT_EQ(errors.at("c")["error"]["code"], "batch_cancelled");
  EXPECT_TRUE(eventually([&] { return engine->num_live() == 0; }));
  EXPECT_EQ(post("/v1/batches/" + id + "/cancel", Json::object()).json()["status"], "cancelled");
}

TEST_F(BatchTest, AWaitingBatchIsCancelledAtOnce) {
  engine->held = true;
  start();
  const std::string input = upload_id(line("a", {{"prompt", "one"}}));
  const std::string first = create(input).json()["id"];
  const std::string second = create(input).json()["id"];
  EXPECT_EQ(get("/v1/batches?limit=1").json()["first_id"], second) << "the newest first";
  EXPECT_EQ(post("/v1/batches/" + second + "/cancel", Json::object()).json()["status"],
            "cancelled");
  engine->held = false;
  EXPECT_EQ(wait_for(first)["status"], "completed");
  EXPECT_EQ(show(second)["request_counts"]["total"], 0);
}

TEST_F(BatchTest, AFileThatIsWrongNamesItsLines) {
  start();
  const std::string input =
      upload_id("not json\n" + line("a", {{"prompt", "one"}}) + line("a", {{"prompt", "two"}}) +
                "{\"custom_id\": \"b\", \"url\": \"/v1/embeddings\", \"body\": {}}\n" +
                "{\"custom_id\": \"c\", \"url\": \"/v1/completions\"}\n" +
                line("d", {{"prompt", "one"}, {"stream", true}}) + "{\"body\": {}}");
  const Json batch = wait_for(create(input).json()["id"]);
  EXPECT_EQ(batch["status"], "failed");
  const Json data = batch["errors"]["data"];
  std::vector<std::pair<int, std::string>> found;
  for (const Json& error : data) {
    found.emplace_back(error["line"].get<int>(),
                       error["param"].is_null() ? "" : error["param"].get<std::string>());
  }
  EXPECT_THAT(found,
              ::testing::ElementsAre(std::pair(1, ""), std::pair(3, "custom_id"),
                                     std::pair(4, "url"), std::pair(5, "body"),
                                     std::pair(6, "body.stream"), std::pair(7, "custom_id")));
  EXPECT_TRUE(engine->submitted().empty());
  EXPECT_EQ(wait_for(create(upload_id("\n \n")).json()["id"])["errors"]["data"][0]["code"],
            "empty_file");
}

TEST_F(BatchTest, ALineMayNotAskForAResponseInTheBackground) {
  start();
  const std::string input = upload_id(Json{{"custom_id", "a"},
                                           {"method", "POST"},
                                           {"url", "/v1/responses"},
                                           {"body", {{"input", "Hi"}, {"background", true}}}}
                                          .dump());
  const Json batch = wait_for(create(input, "/v1/responses").json()["id"]);
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["param"], "body.background");
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(BatchTest, WrongOrdersAreRefused) {
  start();
  const std::string input = upload_id(line("a", {{"prompt", "one"}}));
  const auto param_of = [this](const Json& body) {
    const Reply reply = post("/v1/batches", body);
    EXPECT_GE(reply.status, 400) << reply.body;
    EXPECT_LT(reply.status, 500) << reply.body;
    return error_of(reply)["param"];
  };
  const Json right = {{"input_file_id", input}, {"endpoint", "/v1/completions"}};
  const auto with = [&right](const Json& change) {
    Json body = right;
    body.update(change);
    return body;
  };
  EXPECT_EQ(param_of(Json::object()), "input_file_id");
  EXPECT_EQ(param_of(with({{"input_file_id", "file-none"}})), "input_file_id");
  EXPECT_EQ(param_of(with({{"input_file_id", "../x"}})), "input_file_id");
  EXPECT_EQ(param_of(with({{"endpoint", nullptr}})), "endpoint");
  EXPECT_EQ(param_of(with({{"endpoint", "/v1/embeddings"}})), "endpoint");
  EXPECT_EQ(param_of(with({{"completion_window", "1h"}})), "completion_window");
  EXPECT_EQ(param_of(with({{"metadata", {{"a", 1}}}})), "metadata");
  EXPECT_EQ(param_of(with({{"metadata", {{"a", std::string(513, 'a')}}}})), "metadata");
  EXPECT_EQ(error_of(get("/v1/batches/none"))["code"], "batch_not_found");
  EXPECT_EQ(get("/v1/batches/none/cancel").status, 404);
}

TEST_F(BatchTest, UnfinishedBatchesAreBounded) {
  engine->held = true;
  start();
  const std::string input = upload_id(line("a", {{"prompt", "one"}}));
  for (size_t i = 0; i < BatchRunner::kMaxUnfinished; ++i) ASSERT_EQ(create(input).status, 200);
  const Reply reply = create(input);
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(error_of(reply)["code"], "batch_queue_full");
  EXPECT_TRUE(reply.headers.contains("retry-after"));
}

TEST_F(BatchTest, ABatchWithoutItsFileFails) {
  engine->held = true;
  start();
  const std::string first = create(upload_id(line("a", {{"prompt", "one"}}))).json()["id"];
  const std::string input = upload_id(line("b", {{"prompt", "one"}}));
  const std::string second = create(input).json()["id"];
  EXPECT_EQ(connect().call("DELETE", "/v1/files/" + input).status, 200);
  engine->held = false;
  EXPECT_EQ(wait_for(first)["status"], "completed");
  EXPECT_EQ(wait_for(second)["status"], "failed");
}

TEST_F(BatchTest, ABatchThatFillsTheStoreFailsAndKeepsWhatFits) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += line(std::to_string(i), {{"prompt", "p"}});
  options.file_storage_bytes = static_cast<int64_t>(lines.size()) + 4000;
  start();
  const Json batch = wait_for(create(upload_id(lines)).json()["id"]);
  EXPECT_EQ(batch["status"], "failed") << batch.dump();
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "storage_failed");
  const size_t num_kept = lines_of(batch["output_file_id"]).size();
  EXPECT_GE(num_kept, 1u);
  EXPECT_LT(num_kept, 20u);
}

TEST_F(BatchTest, ABatchEndsAfterADay) {
  std::atomic<int64_t> now{1700000000};
  options.unix_time = [&now] { return now.load(); };
  engine->held = true;
  start();
  const std::string id =
      create(upload_id(line("a", {{"prompt", "one"}}) + line("b", {{"prompt", "one"}})))
          .json()["id"];
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  now += BatchRunner::kWindowSeconds;
  engine->held = false;
  const Json batch = wait_for(id);
  EXPECT_EQ(batch["status"], "expired");
  EXPECT_EQ(lines_of(batch["output_file_id"]).size(), 1u);
  EXPECT_EQ(lines_of(batch["error_file_id"]).at("b")["error"]["code"], "batch_expired");
}

TEST_F(BatchTest, TheServerStopsInTheMiddleOfABatch) {
  engine->held = true;
  options.shutdown_timeout_seconds = 0;
  start();
  ASSERT_EQ(
      create(upload_id(line("a", {{"prompt", "one"}}) + line("b", {{"prompt", "one"}}))).status,
      200);
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  EXPECT_EQ(server->shutdown(), 1);
}

TEST_F(BatchTest, FilesAndBatchesBelongToTheirKey) {
  ApiKey alice;
  alice.secret = "alice-secret";
  alice.name = "alice";
  ApiKey bob;
  bob.secret = "bob-secret";
  bob.name = "bob";
  options.api_keys = {alice, bob};
  start();
  const std::string_view as_alice = "x-api-key: alice-secret\r\n";
  const std::string_view as_bob = "x-api-key: bob-secret\r\n";
  const std::string file = upload(form(line("a", {{"prompt", "one"}})), as_alice).json()["id"];
  const auto call = [this](const char* method, const std::string& path, std::string_view key,
                           const std::string& body = {}) {
    return connect().call(method, path, body, key);
  };
  const std::string order = Json{{"input_file_id", file}, {"endpoint", "/v1/completions"}}.dump();
  EXPECT_EQ(call("POST", "/v1/batches", as_bob, order).status, 404);
  const Reply created = call("POST", "/v1/batches", as_alice, order);
  ASSERT_EQ(created.status, 200) << created.body;
  const std::string batch = created.json()["id"];
  EXPECT_EQ(call("GET", "/v1/files/" + file, as_bob).status, 404);
  EXPECT_EQ(call("GET", "/v1/files/" + file + "/content", as_bob).status, 404);
  EXPECT_EQ(call("DELETE", "/v1/files/" + file, as_bob).status, 404);
  EXPECT_EQ(call("GET", "/v1/batches/" + batch, as_bob).status, 404);
  EXPECT_EQ(call("POST", "/v1/batches/" + batch + "/cancel", as_bob).status, 404);
  EXPECT_EQ(call("GET", "/v1/files", as_bob).json()["data"].size(), 0u);
  EXPECT_EQ(call("GET", "/v1/batches", as_bob).json()["data"].size(), 0u);
  EXPECT_EQ(call("GET", "/v1/batches", as_alice).json()["data"].size(), 1u);
  EXPECT_TRUE(eventually([&] { return !engine->submitted().empty(); }));
  EXPECT_EQ(engine->submitted()[0].tenant, "alice");
}

TEST_F(BatchTest, FilesAndBatchesAreAsOpenAiDescribesThem) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/openapi/openai-openapi.json");
  std::ifstream description(path);
  const OpenApiSchema schema = OpenApiSchema::parse(description);
  const auto expect_valid = [&schema](const char* name, const Json& value) {
    EXPECT_EQ(schema.check(name, value), "") << value.dump();
  };
  start();
  const Json uploaded = upload(form(line("a", {{"prompt", "one"}}) + line("b", {{"n", 0}}))).json();
  expect_valid("OpenAIFile", uploaded);
  const std::string file = uploaded["id"];
  expect_valid("OpenAIFile", get("/v1/files/" + file).json());
  const Json created = create(file).json();
  expect_valid("Batch", created);
  const Json completed = wait_for(created["id"]);
  EXPECT_EQ(completed["status"], "completed");
  expect_valid("Batch", completed);
  const Json failed = wait_for(create(upload_id("x")).json()["id"]);
  EXPECT_EQ(failed["status"], "failed");
  expect_valid("Batch", failed);

  engine->held = true;
  const std::string id = create(file).json()["id"];
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  expect_valid("Batch", show(id));
  expect_valid("Batch", post("/v1/batches/" + id + "/cancel", Json::object()).json());
  engine->held = false;
  const Json cancelled = wait_for(id);
  EXPECT_EQ(cancelled["status"], "cancelled");
  expect_valid("Batch", cancelled);

  expect_valid("ListBatchesResponse", get("/v1/batches").json());
  expect_valid("ListFilesResponse", get("/v1/files").json());
  expect_valid("DeleteFileResponse", connect().call("DELETE", "/v1/files/" + file).json());
}

TEST(BatchInputTest, HasALimitOfRequests) {
  std::string text;
  for (size_t i = 0; i <= kMaxBatchLines; ++i) {
    text += fmt::format("{{\"custom_id\":\"{}\",\"body\":{{}}}}\n", i);
  }
  const auto input = read_batch_input(text, "/v1/completions");
  const auto* const errors = std::get_if<std::vector<BatchError>>(&input);
  ASSERT_NE(errors, nullptr);
  EXPECT_EQ(errors->front().code, "too_many_requests");
  EXPECT_EQ(errors->front().line, static_cast<int64_t>(kMaxBatchLines) + 1);
}

TEST(BatchInputTest, ShowsTheFirstErrors) {
  std::string text;
  for (size_t i = 0; i < 2 * kMaxBatchErrors; ++i) text += "x\n";
  const auto input = read_batch_input(text, "/v1/completions");
  EXPECT_EQ(std::get<std::vector<BatchError>>(input).size(), kMaxBatchErrors);
}

}  // namespace
}  // namespace heddle::server
