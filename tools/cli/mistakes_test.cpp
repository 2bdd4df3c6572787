// SPDX-License-Identifier: Apache-2.0
// Usual mistakes at the command line: each message has the thing that is wrong, its value and the
// remedy.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"
#include "tools/cli/subcommand.h"

namespace heddle::tools {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  const char* line;  // behind "heddle"; words end at blanks, '' is an empty one, M the small model
  const char* thing;
  const char* value;
  const char* remedy;
};

constexpr Mistake kMistakes[] = {
    // Subcommands.
    {"serv M", "unknown subcommand", "\"serv\"", "did you mean serve?"},
    {"run M", "unknown subcommand", "\"run\"", "heddle chat MODEL"},
    {"pull qwen3:8b", "unknown subcommand", "\"pull\"", "hf download ORG/NAME"},
    {"start M", "unknown subcommand", "\"start\"", "heddle serve MODEL"},
    {"help serving", "unknown subcommand", "\"serving\"", "did you mean serve?"},
    {"frobnicate", "unknown subcommand", "\"frobnicate\"", "heddle --help"},
    {"--port 80", "unknown option", "--port", "heddle serve --port"},
    // Names of options, and values that are missing.
    {"serve M --prot 80", "unknown option", "--prot", "did you mean --port?"},
    {"serve M --tls-certificate c", "unknown option", "--tls-certificate",
     "did you mean --ssl-certfile?"},
    {"list --verbosely", "unknown option", "--verbosely", "heddle list --help"},
    {"serve M --host", "--host", "needs a value", "heddle serve --help"},
    {"serve M --served-model-name ''", "--served-model-name", "has no name in it", "leave the"},
    {"serve M --api-key ''", "--api-key", "is empty", "give a key"},
    {"serve M M", "unexpected argument", "heddle-tiny", "heddle serve --help"},
    // Values.
    {"serve M --port 80000", "--port", "80000", "from 0 to 65535"},
    {"serve M --port eight", "--port", "eight", "a whole number"},
    {"serve M --dtype fp17", "--dtype", "\"fp17\"", "did you mean fp16?"},
    {"serve M --quantization q4_k_m", "--quantization", "\"q4_k_m\"", "int4"},
    {"serve M --attention-backend fast", "--attention-backend", "\"fast\"", "use auto or plain"},
    {"serve M --log-level loud", "--log-level", "\"loud\"", "warning"},
    {"serve M --memory-fraction 80", "--memory-fraction", "80", "at most 1"},
    {"serve M --gpu-memory-utilization 1.5", "--gpu-memory-utilization", "1.5", "at most 1"},
    {"serve M --max-num-seqs -3", "--max-num-seqs", "-3", "from 0 to"},
    {"serve M --context-length 9999999", "--context-length", "9999999", "8192"},
    {"serve M --device gpu", "device", "\"gpu\"", "use auto, cpu, cuda or cuda:N"},
    {"serve M --policy best", "--policy", "\"best\"", "choose one of fcfs"},
    {"serve M --socket-mode 999", "--socket-mode", "\"999\"", "three octal digits"},
    {"serve M --tp 9", "--tp", "9", "8"},
    {"serve M --dp 2", "--dp", "2 cannot be", "--tp"},
    {"serve M -ctk q8_0", "-ctk", "q8_0 cannot be", "--kv-cache-dtype"},
    {"serve M --mirostat 2", "no option", "--mirostat", "min_p of requests"},
    {"serve M --samplers top_k", "no option", "--samplers", "there is no such sampler"},
    {"serve M --dry-multiplier 1", "no option", "--dry-multiplier", "there is no such sampler"},
    {"inspect M --lora adapter", "no option", "--lora", "heddle merge MODEL"},
    {"serve M --lora-paths a=none", "none", "adapter", "name the folder of an adapter"},
    {"serve M --lora-paths =none", "names no adapter", "=none", "give NAME=FOLDER"},
    {"serve M --max-lora-rank 0", "--max-lora-rank", "0", "from 1 to 4096"},
    {"serve M --max-lora-rank 8", "--max-lora-rank", "without adapters", "add --enable-lora"},
    {"generate M Hi --lora none", "none", "adapter", "name the folder of an adapter"},
    {"serve M --temp hot", "--temp", "hot", "not a number"},
    {"serve M --reasoning-parser r1", "--reasoning-parser", "\"r1\"", "deepseek-r1"},
    {"serve M --chat-template-kwargs a=b", "--chat-template-kwargs", "a=b", "write one as"},
    {"serve M --exact=maybe", "--exact", "maybe", "true or false"},
    {"serve M -- --port", "--port", "follows --", "put it before"},
    {"serve M --host http://0.0.0.0", "--host", "http://0.0.0.0", "--port takes the port"},
    {"serve M --host localhost:8080", "--host", "localhost:8080", "--port takes the port"},
    {"serve M --preferred-sampling-params t=1", "--preferred-sampling-params", "'t='",
     "Write one as"},
    {"generate M Hi --url http://host", "unknown option", "--url", "heddle generate --help"},
    {"generate M Hi --temperature -1", "--temperature", "-1", "at least 0"},
    {"generate M Hi --top-p 2", "--top-p", "2", "from 0 to 1"},
    {"generate M Hi --max-tokens 0", "--max-tokens", "0 is not", "from 1 to"},
    {"quantize M out --format int3", "--format", "\"int3\"", "awq, fp8-block, int8"},
    {"merge M adapter", "only one folder", "adapter", "then the folder to make"},
    {"merge M a b out --scale 2", "--scale", "1 times for 2", "once for each"},
    {"merge M a out --scale inf", "--scale", "inf", "number"},
    {"merge M none out", "folder", "none", "adapter_model.safetensors"},
    {"merge M M out", "folder", "heddle-tiny", "name the folder of an adapter"},
    {"bench serve --rate 0", "--rate", "0 is not", "above 0"},
    // Files, folders, addresses.
    {"serve /no/such/folder", "folder", "/no/such/folder", "config.json"},
    {"serve org/no-such-model", "cache", "org/no-such-model", "hf download org/no-such-model"},
    {"serve https://huggingface.co/org/none", "cache", "org/none", "hf download org/none"},
    {"serve hf.co/org/none/", "cache", "org/none", "hf download org/none`"},
    {"serve https://hf.co/org/none/tree/v2", "revision", "org/none@v2", "--revision v2"},
    {"serve M --chat-template chatml", "--chat-template", "chatml", "in Jinja"},
    {"serve M --speculative-algorithm eagle --speculative-draft-model-path /none",
     "--speculative-draft-model-path", "/none", "config.json"},
    {"serve M --file-storage-path /proc/x --port 0", "--file-storage-path", "/proc/x",
     "may write to"},
    {"bench cache M --trace /none", "the trace", "/none", "(.jsonl)"},
    {"bench serve --extra-body x", "--extra-body", "x", "write one as"},
    {"serve org/name-GGUF:Q4_K_M", "GGUF", "org/name-GGUF:Q4_K_M", "*.safetensors"},
    {"serve ~/model", "folder", "~/model", "the shell has not expanded its ~"},
    {"serve M --config /no/file.yaml", "--config", "/no/file.yaml", "there is no such file"},
    {"serve M --host unix:", "--host", "unix:", "1 to 107 characters"},
    {"serve M --ssl-certfile c --ssl-keyfile k --port 0", "--ssl-certfile", "c is no certificate",
     "PEM"},
    {"generate M", "prompt", "no prompt", "give a text in quotes"},
    {"eval --url http://host", "question set", "http://host", "name a question set (.jsonl)"},
    {"eval", "MODEL_DIR", "is required", "--url"},
    {"eval M s.jsonl --timeout 5", "--timeout", "requires", "--url"},
    {"inspect M/config.json", "not a folder", "config.json", "name the one that it is in"},
    {"eval M", "question set", "heddle-tiny", "(.jsonl)"},
    {"eval M none.jsonl", "question set", "none.jsonl", "name a .jsonl file"},
    {"bench serve --prompts /no/file", "cannot read", "/no/file", "one request a line"},
    {"bench serve --url ftp://host", "--url", "ftp://host", "http://HOST:PORT"},
    {"chat --url localhost:99999", "the port", "99999", "from 1 to 65535"},
    {"chat --url http://127.0.0.1:1", "http://127.0.0.1:1", "refused", "is the server up?"},
    {"chat M --url http://host", "--url http://host", "heddle-tiny", "name one"},
    {"chat --api-key k", "--api-key", "requires", "--url"},
};

std::vector<std::string> words_of(std::string_view line) {
  const std::string model = heddle::testing::repository_path("models/heddle-tiny").string();
  std::vector<std::string> words = {"heddle"};
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    std::string word(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
    if (word == "''") word.clear();
    if (word == "M" || word.starts_with("M/")) word.replace(0, 1, model);
    words.push_back(std::move(word));
  }
  return words;
}

// The machine's cache of models does not decide.
class Mistakes : public ::testing::Test {
 protected:
  Mistakes() {
    const std::filesystem::path empty = ::testing::TempDir() + "heddle_no_models";
    std::filesystem::create_directories(empty);
    ::setenv("HF_HUB_CACHE", empty.c_str(), 1);
  }

  ~Mistakes() override { ::unsetenv("HF_HUB_CACHE"); }
};

int exit_code_of(std::string_view line) {
  std::vector<std::string> words = words_of(line);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return run_program(static_cast<int>(pointers.size()), pointers.data(), kSubcommands);
}

TEST_F(Mistakes, AWrongCommandLineEndsWithTheCodeOfUsageInEverySubcommand) {
  for (const char* const line : {"serve M --api-key ''",
                                 "serve M --page-size 24 --port 0",
                                 "serve M --device gpu --port 0",
                                 "generate M",
                                 "generate M Hi --json -o answers.jsonl",
                                 "chat M --url http://host",
                                 "chat --dp 2",
                                 "list all",
                                 "bench",
                                 "bench serve --extra-body x",
                                 "bench cache M --patterns all",
                                 "bench offline M --prefill x",
                                 "bench speculative M --parallel 0",
                                 "bench ops --device gpu",
                                 "verify",
                                 "eval",
                                 "eval M",
                                 "eval --url http://host",
                                 "inspect",
                                 "inspect M --step-tokens 3",
                                 "quantize M out --group-size 33",
                                 "merge M",
                                 "export-nextn M",
                                 "version all"}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(exit_code_of(line), kExitUsage) << line;
    EXPECT_NE(::testing::internal::GetCapturedStderr(), "") << line;
  }
}

TEST_F(Mistakes, OptionsOfItsOwnAreNotThoseOfOtherServers) {
  for (const char* const line : {"generate M --temperature 0.5 --top-p 0.9 --seed 7",
                                 "chat M --url http://host --min-p 0.1"}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(exit_code_of(line), kExitUsage) << line;
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find("note: "), std::string::npos) << line;
  }
}

TEST_F(Mistakes, EachMessageHasTheThingItsValueAndTheRemedy) {
  for (const Mistake& mistake : kMistakes) {
    SCOPED_TRACE(mistake.line);
    ::testing::internal::CaptureStderr();
    const int exit_code = exit_code_of(mistake.line);
    std::string errors = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(exit_code, 0);
    const size_t begin = errors.find("error: ");
    ASSERT_NE(begin, std::string::npos) << errors;
    errors.erase(0, begin);
    EXPECT_THAT(errors, HasSubstr(mistake.thing));
    EXPECT_THAT(errors, HasSubstr(mistake.value));
    EXPECT_THAT(errors, HasSubstr(mistake.remedy));
  }
}

}  // namespace
}  // namespace heddle::tools
