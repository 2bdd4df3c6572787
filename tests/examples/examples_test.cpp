// SPDX-License-Identifier: Apache-2.0
// Every program of examples/ runs as its users would run it, against the small model.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/call/text_codec.h"
#include "server/server.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

struct Output {
  int exit_code = -1;
  std::string text;  // of both streams
};

// Runs a command line of the shell.
Output run(const std::string& command) {
  Output output;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer;
  for (size_t size = 0; (size = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.text.append(buffer.data(), size);
  }
  const int status = pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

bool is_installed(const std::string& program) {
  return run("command -v " + program).exit_code == 0;
}

// Greedy answers of heddle-tiny, of recorded questions: they are the same in every number format.
constexpr const char* kQuestion = "What is 36 + 16?";
constexpr const char* kAnswer = "36 + 16 = 52.";

// A server in this process, asked by clients of other processes.
class ClientExamples : public ::testing::Test {
 protected:
  void SetUp() override {
    server::ServerOptions options;
    options.http.port = 0;
    auto listening = server::Server::listen(options);
    ASSERT_TRUE(listening.ok()) << listening.status().to_string();
    server_ = std::move(*listening);
    const EngineOptions engine_options{.model_dir = testing::repository_path("models/heddle-tiny"),
                                       .num_threads = 1,
                                       .max_running_requests = 2,
                                       .max_total_tokens = 4096};
    auto engine = Engine::create(engine_options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    auto codec = server::make_model_codec(engine_options.model_dir, *(*engine)->tokenizer(), {});
    ASSERT_TRUE(codec.ok()) << codec.status().to_string();
    server_->start_serving(std::move(*engine), std::move(*codec), nlohmann::ordered_json::object());
  }

  [[nodiscard]] Output ask(const std::string& interpreter, const std::string& script,
                           const std::string& path = "") const {
    return run(fmt::format("{} {} '{}' http://127.0.0.1:{}{}", interpreter,
                           testing::repository_path("examples/" + script).string(), kQuestion,
                           server_->port(), path));
  }

  std::unique_ptr<server::Server> server_;
};

TEST_F(ClientExamples, Python) {
  if (!is_installed("python3")) GTEST_SKIP() << "python3 is not installed";
  const Output output = ask("python3", "client.py");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_EQ(output.text, std::string(kAnswer) + "\n");
  EXPECT_NE(ask("python3", "client.py", "/nowhere").exit_code, 0);
}

TEST_F(ClientExamples, JavaScript) {
  if (!is_installed("node")) GTEST_SKIP() << "node is not installed";
  const Output output = ask("node", "client.mjs");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_EQ(output.text, std::string(kAnswer) + "\n");
  EXPECT_NE(ask("node", "client.mjs", "/nowhere").exit_code, 0);
}

TEST_F(ClientExamples, Curl) {
  if (!is_installed("curl")) GTEST_SKIP() << "curl is not installed";
  const Output output = ask("sh", "client.sh");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.text, HasSubstr(fmt::format("\"content\":\"{}\"", kAnswer))) << "at once";
  EXPECT_THAT(output.text, HasSubstr("\"chat.completion.chunk\"")) << "as a stream";
  EXPECT_THAT(output.text, EndsWith("data: [DONE]\n\n"));
  EXPECT_NE(ask("sh", "client.sh", "/nowhere").exit_code, 0);
}

TEST(EmbedExample, PrintsTheAnswer) {
  const std::string model = testing::repository_path("models/heddle-tiny").string();
  const Output output =
      run(fmt::format("{} {} '<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n'",
                      HEDDLE_EMBED_EXAMPLE, model, kQuestion));
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.text, EndsWith(std::string(kAnswer) + "\n"));
  const Output missing = run(fmt::format("{} /nowhere text", HEDDLE_EMBED_EXAMPLE));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.text, HasSubstr("error: there is no folder /nowhere"));
}

}  // namespace
}  // namespace heddle
