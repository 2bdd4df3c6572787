// SPDX-License-Identifier: Apache-2.0
// The lines of the request log, and the calls that they are of.
#include "server/call/request_log.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "server/http/body_sender.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr const char* kJsonFile = "request-log-20231114.jsonl";
constexpr const char* kTextFile = "request-log-20231114.log";

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

// A folder of the test's own.
class LogFolder {
 public:
  LogFolder()
      : path(std::filesystem::path(::testing::TempDir()) /
             (std::string("request_log_") +
              ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path);
  }

  ~LogFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  [[nodiscard]] std::vector<std::string> lines(const std::string& file) const {
    std::vector<std::string> result;
    std::ifstream stream(path / file);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }

  [[nodiscard]] std::vector<Json> objects() const {
    std::vector<Json> result;
    for (const std::string& line : lines(kJsonFile)) {
      result.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(result.back().is_object()) << line;
    }
    return result;
  }

  const std::filesystem::path path;
};

class RequestLogTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<RequestLog> open(RequestLogSettings settings) {
    settings.on = true;
    auto log = RequestLog::open({.settings = settings, .folder = folder.path.string()},
                                [this] { return now; });
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    return std::move(log).value();
  }

  [[nodiscard]] Request request(std::string_view prompt) const {
    Request result;
    result.prompt = codec.encode(prompt, false).value();
    result.tenant = tenant;
    result.sampling.temperature = 0.7f;
    return result;
  }

  [[nodiscard]] std::shared_ptr<LoggedCall> receive(RequestLog& log,
                                                    const std::vector<Request>& requests) const {
    return log.received({.id = "a",
                         .path = "/generate",
                         .model = "m",
                         .no_logs = no_logs,
                         .requests = requests,
                         .codec = codec,
                         .arrived_at = std::chrono::steady_clock::now()});
  }

  void finish(std::shared_ptr<LoggedCall> call, const std::vector<std::string>& texts) const {
    for (const RequestEvent& event : answer_events(texts)) call->add(0, event);
    LoggedCall::end(std::move(call), on_this_thread);
  }

  void log_call(RequestLog& log, std::string_view prompt, std::string_view answer) const {
    finish(receive(log, {request(prompt)}), {std::string(answer)});
  }

  const LogFolder folder;
  const FakeCodec codec;
  const BodyThreads on_this_thread{.run_on_worker =
                                       [](const std::function<void()>& work) {
                                         work();
                                         return true;
                                       },
                                   .post = {}};
  int64_t now = 1700000000;  // 2023-11-14T22:13:20Z
  std::string tenant = "alice";
  bool no_logs = false;
};

TEST_F(RequestLogTest, WhereNoWorkerHasRoomTheIoThreadWritesNoLine) {
  const auto log = open({.format = RequestLogFormat::kJson});
  const BodyThreads busy{.run_on_worker = [](const std::function<void()>&) { return false; },
                         .post = {}};
  LoggedCall::end(receive(*log, {request("prompt")}), busy);
  EXPECT_EQ(folder.objects().size(), 1u) << "that of the arrival";
}

TEST_F(RequestLogTest, TheLevelSaysHowMuchIsShown) {
  const std::string prompt(3000, 'p');
  const std::string answer(3000, 'a');
  for (int32_t level = 0; level <= kMaxRequestLogLevel; ++level) {
    SCOPED_TRACE(level);
    const auto log = open({.level = level, .format = RequestLogFormat::kJson});
    log_call(*log, prompt, answer);
    const std::vector<Json> lines = folder.objects();
    ASSERT_EQ(lines.size(), 2u);
    const Json& received = lines[0];
    EXPECT_EQ(received["event"], "received");
    EXPECT_EQ(received["time"], "2023-11-14T22:13:20Z");
    EXPECT_EQ(received["id"], "a");
    EXPECT_EQ(received["path"], "/generate");
    EXPECT_EQ(received["model"], "m");
    EXPECT_EQ(received["tenant"], "alice");
    EXPECT_EQ(received["num_prompts"], 1);
    EXPECT_EQ(received["prompt_tokens"], 3000);
    const Json& finished = lines[1];
    EXPECT_EQ(finished["event"], "finished");
    EXPECT_EQ(finished["id"], "a");
    EXPECT_EQ(finished["finish_reasons"], Json({{"stop", 1}}));
    EXPECT_EQ(finished["prompt_tokens"], 3000);
    EXPECT_GE(finished["elapsed_seconds"], 0);
    EXPECT_EQ(received.contains("sampling_params"), level >= 1);
    EXPECT_EQ(received.contains("input"), level >= 2);
    EXPECT_EQ(finished.contains("output"), level >= 2);
    if (level >= 1) {
      EXPECT_EQ(received["sampling_params"][0]["temperature"], 0.7);
    }
    if (level >= 2) {
      const size_t shown = level == 2 ? 2048 : 3000;
      EXPECT_EQ(received["input"], Json::array({prompt.substr(0, shown)}));
      EXPECT_EQ(finished["output"], Json::array({answer.substr(0, shown)}));
    }
    std::filesystem::remove(folder.path / kJsonFile);
  }
}

TEST_F(RequestLogTest, NoLogsHidesTextsAndParametersWhateverTheLevel) {
  no_logs = true;
  const auto log = open({.level = 3});
  log_call(*log, "secret prompt", "secret answer");
  const auto lines = folder.lines(kTextFile);
  EXPECT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines, Each(AllOf(HasSubstr("no_logs=true"), HasSubstr("id=\"a\""),
                                Not(HasSubstr("secret")), Not(HasSubstr("temperature")))));
}

TEST_F(RequestLogTest, TextsAreCutBetweenCharacters) {
  for (const std::string_view character : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    SCOPED_TRACE(character);
    const auto log = open({.level = 2, .format = RequestLogFormat::kJson});
    const std::string text = repeated(character, 3000);
    finish(receive(*log, {request(text)}), {text.substr(0, 1500 * character.size()), text});
    const std::vector<Json> lines = folder.objects();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0]["input"][0], repeated(character, 2048));
    EXPECT_EQ(lines[1]["output"][0], repeated(character, 2048));
    std::filesystem::remove(folder.path / kJsonFile);
  }
}

TEST_F(RequestLogTest, NoTextCanBeginALineOrSteerATerminal) {
  const std::string attack =
      "x\n2023-11-14T22:13:20Z finished id=\"b\"\r\x1b[2J\x7f\xC2\x9B\xE2\x80\xAE\xE2\x80\xA8 end";
  tenant = attack;
  for (const RequestLogFormat format : {RequestLogFormat::kText, RequestLogFormat::kJson}) {
    SCOPED_TRACE(to_string(format));
    const auto log = open({.level = 3, .format = format});
    log_call(*log, attack, attack);
    const auto lines = folder.lines(format == RequestLogFormat::kText ? kTextFile : kJsonFile);
    ASSERT_THAT(lines, SizeIs(2));
    for (const std::string& line : lines) {
      for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
      EXPECT_THAT(line, AllOf(HasSubstr("\\u001b[2J\\u007f\\u009b\\u202e\\u2028 end"),
                              HasSubstr(R"(id=\"b\")"), Not(HasSubstr("\xE2\x80\xAE"))));
    }
  }
  EXPECT_THAT(folder.lines(kTextFile),
              ElementsAre(StartsWith("2023-11-14T22:13:20Z received id=\"a\" path=\"/generate\""),
                          StartsWith("2023-11-14T22:13:20Z finished id=\"a\" path=\"/generate\"")));
  const std::vector<Json> objects = folder.objects();
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0]["tenant"], attack);
  EXPECT_EQ(objects[0]["input"][0], attack);
}

TEST_F(RequestLogTest, ALineHasAFewOfManyPromptsBelowTheHighestLevel) {
  std::vector<Request> requests;
  for (int prompt = 0; prompt < 20; ++prompt) {
    for (int32_t choice = 0; choice < 2; ++choice) {
      requests.push_back(request("p"));
      requests.back().choice_index = choice;
    }
  }
  for (const auto& [level, num_inputs, num_outputs] :
       {std::tuple{2, 16u, 16u}, std::tuple{3, 20u, 40u}}) {
    SCOPED_TRACE(level);
    const auto log = open({.level = level, .format = RequestLogFormat::kJson});
    finish(receive(*log, requests), {"answer"});
    const std::vector<Json> lines = folder.objects();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0]["num_prompts"], 20);
    EXPECT_EQ(lines[0]["num_answers"], 40);
    EXPECT_EQ(lines[0]["prompt_tokens"], 20);
    EXPECT_EQ(lines[0]["input"].size(), num_inputs);
    EXPECT_EQ(lines[0]["sampling_params"].size(), num_inputs);
    EXPECT_EQ(lines[1]["output"].size(), num_outputs);
    EXPECT_EQ(lines[1]["finish_reasons"], Json({{"stop", 1}, {"abort", 39}}));
    std::filesystem::remove(folder.path / kJsonFile);
  }
}

TEST_F(RequestLogTest, AFailureIsShownByItsCode) {
  const auto log = open({.level = 2, .format = RequestLogFormat::kJson});
  LoggedCall::end(receive(*log, {request("p")}), on_this_thread, "RESOURCE_EXHAUSTED");
  const auto call = receive(*log, {request("p")});
  RequestEvent event;
  event.finish = finish_of(FinishReason::kError, internal_error("a secret of the engine"));
  call->add(0, event);
  LoggedCall::end(call, on_this_thread);
  const std::vector<Json> lines = folder.objects();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["finish_reasons"], Json({{"error", 1}}));
  EXPECT_EQ(lines[1]["error"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(lines[3]["finish_reasons"], Json({{"error", 1}}));
  EXPECT_EQ(lines[3]["error"], "INTERNAL");
}

TEST_F(RequestLogTest, EveryDayHasAFileThatOthersCannotRead) {
  const auto log = open({});
  log_call(*log, "p", "a");
  now += 24 * 3600;
  log_call(*log, "p", "a");
  std::filesystem::remove(folder.path / "request-log-20231115.log");
  log_call(*log, "p", "a");
  EXPECT_THAT(folder.lines(kTextFile), SizeIs(2));
  EXPECT_THAT(folder.lines("request-log-20231115.log"), SizeIs(2)) << "it is made anew";
  EXPECT_EQ(std::filesystem::status(folder.path / kTextFile).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(RequestLogTest, LinesGoToStandardOutputWithoutAFolder) {
  const auto log = RequestLog::open({.settings = {.on = true}}, [this] { return now; });
  ASSERT_TRUE(log.ok());
  ::testing::internal::CaptureStdout();
  log_call(**log, "p", "a");
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::ranges::count(output, '\n'), 2);
  EXPECT_THAT(output, AllOf(StartsWith("2023-11-14T22:13:20Z received id=\"a\""),
                            HasSubstr("\n2023-11-14T22:13:20Z finished id=\"a\"")));
}

TEST_F(RequestLogTest, NothingIsWrittenWhileItIsOff) {
  const auto log = open({});
  log->change({.on = false});
  EXPECT_EQ(receive(*log, {request("p")}), nullptr);
  LoggedCall::end(nullptr, on_this_thread);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST_F(RequestLogTest, LessCountsAtOnceAndMoreForCallsThatCome) {
  const auto log = open({.level = 3, .format = RequestLogFormat::kJson});
  const auto call = receive(*log, {request("p")});
  log->change({.level = 0, .format = RequestLogFormat::kJson, .on = true});
  finish(call, {"answer"});
  const auto quiet = receive(*log, {request("p")});
  log->change({.level = 3, .format = RequestLogFormat::kJson, .on = true});
  finish(quiet, {"answer"});
  const auto last = receive(*log, {request("p")});
  log->change({.on = false});
  finish(last, {"answer"});
  const std::vector<Json> lines = folder.objects();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_TRUE(lines[0].contains("input"));
  EXPECT_FALSE(lines[1].contains("output"));
  EXPECT_FALSE(lines[2].contains("input"));
  EXPECT_FALSE(lines[3].contains("output"));
  EXPECT_EQ(lines[4]["event"], "received") << "its end came after the log's";
}

TEST_F(RequestLogTest, LinesThatCannotBeWrittenAreOneWarning) {
  const auto log = open({});
  std::filesystem::remove_all(folder.path);
  ::testing::internal::CaptureStderr();
  log_call(*log, "p", "a");
  log_call(*log, "p", "a");
  const std::string errors = ::testing::internal::GetCapturedStderr();
  const size_t first = errors.find("The request log cannot be written to");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(errors.find("The request log", first + 1), std::string::npos);
  std::filesystem::create_directories(folder.path);
  log_call(*log, "p", "a");
  EXPECT_THAT(folder.lines(kTextFile), SizeIs(2));
}

class LoggedServerTest : public ServerTest {
 protected:
  LoggedServerTest() {
    options.request_log = {.settings = {.level = 2, .format = RequestLogFormat::kJson, .on = true},
                           .folder = folder.path.string()};
  }

  ~LoggedServerTest() override { server.reset(); }  // it writes to the folder

  // The lines of the log once there are so many.
  [[nodiscard]] std::vector<Json> logged(size_t count) const {
    EXPECT_TRUE(eventually([&] { return folder.lines(kJsonFile).size() >= count; }));
    return folder.objects();
  }

  const LogFolder folder;
};

TEST_F(LoggedServerTest, ACallHasALineWhenItComesAndOneWhenItEnds) {
  start();
  ASSERT_EQ(post("/generate", {{"text", "Hi"},
                               {"rid", "r"},
                               {"user", "alice"},
                               {"sampling_params", {{"temperature", 0.5}, {"stop", "END"}}}})
                .status,
            200);
  const std::vector<Json> lines = logged(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["event"], "received");
  EXPECT_EQ(lines[0]["id"], "r");
  EXPECT_EQ(lines[0]["path"], "/generate");
  EXPECT_EQ(lines[0]["model"], "m");
  EXPECT_EQ(lines[0]["tenant"], "alice");
  EXPECT_EQ(lines[0]["input"], Json::array({"Hi"}));
  EXPECT_EQ(lines[0]["sampling_params"][0]["temperature"], 0.5);
  EXPECT_EQ(lines[0]["sampling_params"][0]["stop"], Json::array({"END"}));
  EXPECT_EQ(lines[1]["event"], "finished");
  EXPECT_EQ(lines[1]["id"], "r");
  EXPECT_EQ(lines[1]["finish_reasons"], Json({{"stop", 1}}));
  EXPECT_EQ(lines[1]["completion_tokens"], 3);
  EXPECT_EQ(lines[1]["output"], Json::array({"Hello there"}));
}

TEST_F(LoggedServerTest, CallsOfEveryApiAreLoggedAndAllMaySayNoLogs) {
  start();
  const Json messages = Json::array({{{"role", "user"}, {"content", "private"}}});
  std::pair<const char*, Json> calls[] = {
      {"/generate", {{"text", "private"}}},
      {"/v1/completions", {{"prompt", "private"}}},
      {kChat, {{"messages", messages}}},
      {"/v1/responses", {{"input", "private"}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 5}}},
      {"/api/chat", {{"messages", messages}}},
  };
  size_t num_lines = 0;
  for (auto& [path, body] : calls) {
    SCOPED_TRACE(path);
    body["model"] = "m";
    ASSERT_EQ(post(path, body).status, 200);
    std::vector<Json> lines = logged(num_lines += 2);
    ASSERT_EQ(lines.size(), num_lines);
    EXPECT_EQ(lines.back()["path"], path);
    EXPECT_THAT(lines[num_lines - 2].dump(), HasSubstr("private"));
    EXPECT_THAT(lines.back().dump(), HasSubstr("Hello there"));
    Json hidden = body;
    hidden["no_logs"] = true;
    ASSERT_EQ(post(path, hidden).status, 200);
    lines = logged(num_lines += 2);
    ASSERT_EQ(lines.size(), num_lines);
    EXPECT_THAT(lines[num_lines - 2].dump(),
                AllOf(Not(HasSubstr("private")), Not(HasSubstr("temperature"))));
    EXPECT_THAT(lines.back().dump(), Not(HasSubstr("Hello")));
    hidden["no_logs"] = "yes";
    EXPECT_EQ(post(path, hidden).status, 400);
  }
}

TEST_F(LoggedServerTest, CallsThatTheEngineRefusesEndWithTheirError) {
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  start();
  EXPECT_EQ(post("/generate", {{"text", "Hi"}}).status, 503);
  const std::vector<Json> lines = logged(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["finish_reasons"], Json({{"error", 1}}));
  EXPECT_EQ(lines[1]["error"], "RESOURCE_EXHAUSTED");
}

TEST_F(LoggedServerTest, AnIdThatIsTakenIsAnErrorToo) {
  start();
  engine->held = true;
  HttpClient client = connect();
  client.send_request("POST", "/generate", R"({"text": "Hi", "rid": "r"})");
  ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  EXPECT_EQ(post("/generate", {{"text", "Hi"}, {"rid", "r"}}).status, 400);
  EXPECT_EQ(logged(3).back()["error"], "INVALID_ARGUMENT");
  engine->held = false;
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(LoggedServerTest, AClientThatLeavesEndsItsCall) {
  start();
  engine->held = true;
  {
    HttpClient client = connect();
    client.send_request("POST", "/generate", R"({"text": "Hi", "stream": true})");
    ASSERT_TRUE(eventually([&] { return engine->num_live() == 1; }));
  }
  const std::vector<Json> lines = logged(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["finish_reasons"], Json({{"abort", 1}}));
}

TEST_F(LoggedServerTest, RequestsThatAreNotUnderstoodHaveNoLines) {
  start();
  EXPECT_EQ(post("/generate", {{"text", 7}}).status, 400);
  EXPECT_EQ(post("/tokenize", {{"prompt", "private"}}).status, 200);
  EXPECT_THAT(folder.objects(), IsEmpty());
}

TEST_F(LoggedServerTest, LoggingOfRequestsIsSwitchedWhileTheServerRuns) {
  options.request_log.settings = {};
  start();
  const Json off = {{"log_level", "error"},
                    {"log_requests", false},
                    {"log_requests_level", 2},
                    {"log_requests_format", "text"}};
  EXPECT_EQ(get("/configure_logging").json(), off);
  EXPECT_EQ(post("/generate", {{"text", "Hi"}}).status, 200);
  const Json wanted = {
      {"log_requests", true}, {"log_requests_level", 0}, {"log_requests_format", "json"}};
  Json on = off;
  on.update(wanted);
  EXPECT_EQ(post("/configure_logging", wanted).json(), on);
  EXPECT_EQ(get("/configure_logging").json(), on);
  EXPECT_EQ(post("/generate", {{"text", "Hi"}, {"rid", "r"}}).status, 200);
  const std::vector<Json> lines = logged(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["id"], "r") << "the call before has no lines";
  EXPECT_FALSE(lines[0].contains("input"));
  EXPECT_EQ(post("/configure_logging", {{"log_requests", false}}).json()["log_requests_level"], 0);
  EXPECT_EQ(post("/generate", {{"text", "Hi"}}).status, 200);
  EXPECT_THAT(folder.objects(), SizeIs(2));
}

TEST_F(LoggedServerTest, AWrongSettingChangesNothing) {
  start();
  const Json before = get("/configure_logging").json();
  const std::pair<const char*, Json> cases[] = {
      {"log_requests", "yes"},          {"log_requests", 1},
      {"log_requests_level", 4},        {"log_requests_level", -1},
      {"log_requests_level", "2"},      {"log_requests_format", "xml"},
      {"log_requests_format", true},    {"log_requests_target", "/tmp"},
      {"dump_requests_folder", "/tmp"}, {"dump_requests_threshold", 5},
      {"crash_dump_folder", "/tmp"},    {"log_level", "loud"}};
  for (const auto& [name, value] : cases) {
    Json body = {{"log_level", "warning"}, {"log_requests", false}, {"log_requests_level", 0}};
    body[name] = value;
    const Reply reply = post("/configure_logging", body);
    EXPECT_EQ(reply.status, 400) << body.dump();
    EXPECT_EQ(error_of(reply)["param"], name) << body.dump();
    EXPECT_EQ(get("/configure_logging").json(), before) << body.dump();
  }
}

TEST_F(LoggedServerTest, AFolderThatCannotHaveTheLogIsRefusedAtTheStart) {
  std::filesystem::create_directories(folder.path);
  std::ofstream(folder.path / "file") << "x";
  for (const std::filesystem::path below : {"file", "file/below"}) {
    options.request_log.folder = (folder.path / below).string();
    const auto refused = Server::listen(options);
    ASSERT_FALSE(refused.ok()) << options.request_log.folder;
    EXPECT_THAT(refused.status().message(),
                AllOf(HasSubstr("--log-requests-target"), HasSubstr(options.request_log.folder),
                      HasSubstr("or stdout")));
  }
}

}  // namespace
}  // namespace heddle::server
