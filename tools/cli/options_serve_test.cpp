// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_serve.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"
#include "tools/cli/familiar_options.h"
#include "tools/cli/subcommand_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::function<int()> declare_serve(Options& options) {
  auto settings = std::make_shared<ServeSettings>();
  declare_serve_options(options, *settings);
  return [settings] { return 0; };
}

const Subcommand kServe = {.name = "serve", .summary = "", .declare = declare_serve};

// `line` is split at spaces.
Outcome try_serve(const std::string& line) {
  std::vector<std::string> arguments;
  for (size_t start = 0; start < line.size();) {
    const size_t end = std::min(line.find(' ', start), line.size());
    arguments.push_back(line.substr(start, end - start));
    start = end + 1;
  }
  return run_captured(kServe, std::move(arguments));
}

TEST(ServeOptionsTest, AnOptionWithoutEffectIsAnErrorThatSaysWhatItNeeds) {
  const std::pair<const char*, const char*> cases[] = {
      {"--prefills-per-decode 4", "--no-mixed-batches"},
      {"--decode-interleave 4 --mixed-batches", "--no-mixed-batches"},
      {"--cache-aware-max-wait-secs 1", "--policy lpm or dfs-weight"},
      {"--low-values-first", "--enable-priority"},
      {"--default-priority 3", "--enable-priority"},
      {"--no-preemption", "--enable-priority"},
      {"--preemption-threshold 3", "--enable-priority"},
      {"--max-preemptions 3", "--enable-priority"},
      {"--preemption-min-run-secs 3", "--enable-priority"},
      {"--priority-aging-secs 3", "--enable-priority"},
      {"--preemption-threshold 3 --enable-priority --no-preemption", "drop --no-preemption"},
      {"--reject-priority-when-disabled --policy priority", "turn them off"},
      {"--fair-cost-input 3", "--policy fair"},
      {"--max-loras 4 --lora-paths fox=folder", "add --enable-lora"},
      {"--max-lora-rank 4", "add --enable-lora"},
      {"--state-cache-dtype int8 --no-prefix-cache", "drop --no-prefix-cache"},
      {"--snapshot-interval 128 --no-prefix-cache", "drop --no-prefix-cache"},
      {"--metrics-names sglang --no-metrics", "drop --no-metrics"},
      {"--fair-key api-key", "--tenant-max-running"},
      {"--key-storage-share 0.5", "--api-keys-file"},
      {"--speculative-algorithm none --speculative-num-draft-tokens 4",
       "use --speculative-algorithm"},
      {"--speculative-algorithm none --speculative-num-steps 3", "--speculative-algorithm mtp"},
      {"--speculative-algorithm ngram --speculative-num-steps 3", "--speculative-num-draft-tokens"},
      {"--speculative-draft-model-path somewhere", "--speculative-algorithm eagle3 or standalone"},
      {"--speculative-algorithm standalone --speculative-eagle-topk 2",
       "--speculative-algorithm eagle3"},
  };
  for (const auto& [line, remedy] : cases) {
    const Outcome outcome = try_serve(line);
    EXPECT_EQ(outcome.exit_code, kExitUsage) << line;
    EXPECT_THAT(outcome.errors, HasSubstr("has no effect")) << line;
    EXPECT_THAT(outcome.errors, HasSubstr(remedy)) << line;
  }
}

TEST(ServeOptionsTest, StartScriptsOfOtherServersAreTaken) {
  for (const char* const line :
       {"--model-path models/heddle-tiny --host 0.0.0.0 --port 30000 --dtype auto --tp-size 1 "
        "--dp-size 1 --context-length 4096 --kv-cache-dtype auto --max-running-requests 8 "
        "--max-total-tokens 8192 --chunked-prefill-size 512 --max-prefill-tokens 4096 "
        "--schedule-policy lpm --schedule-conservativeness 1.0 --page-size 16 --random-seed 7 "
        "--stream-interval 1 --log-level info --log-level-http warning --log-requests "
        "--api-key secret --served-model-name m --trust-remote-code --attention-backend fa3 "
        "--sampling-backend flashinfer --grammar-backend xgrammar --disable-cuda-graph "
        "--enable-metrics --enable-cache-report --reasoning-parser qwen3 --tool-call-parser qwen "
        "--enable-mixed-chunk --watchdog-timeout 300 --skip-server-warmup "
        "--decode-log-interval 40 --disable-custom-all-reduce --sampling-defaults openai "
        "--mamba-ssm-dtype float32 --num-continuous-decode-steps 4 --weight-version v1 "
        "--constrained-json-disable-any-whitespace --enable-torch-compile --nccl-port 28000",
        "--model models/heddle-tiny --max-model-len 4096 --max-num-seqs 8 "
        "--max-num-batched-tokens 512 --tensor-parallel-size 1 --pipeline-parallel-size 1 "
        "--block-size 16 --enable-prefix-caching --enforce-eager --swap-space 4 "
        "--guided-decoding-backend xgrammar --enable-auto-tool-choice --tool-call-parser hermes "
        "--enable-chunked-prefill --disable-log-stats --uvicorn-log-level warning "
        "--response-role assistant --allowed-origins none --tokenizer-mode auto --revision main "
        "--download-dir models --gpu-memory-utilization 0.9 --reasoning-parser deepseek_r1",
        // As SGLang's guide starts Qwen3-Coder on one GPU.
        "--model-path models/heddle-tiny --served-model-name qwen3-coder --tp 1 "
        "--mem-fraction-static 0.85 --context-length 4096 --cuda-graph-max-bs 64 "
        "--cuda-graph-bs 1 2 4 8 --disable-cuda-graph-padding --enable-nan-detection "
        "--tool-call-parser qwen3_coder --reasoning-parser qwen3 --tool-server none "
        "--max-running-requests 64 --chunked-prefill-size 4096 --schedule-policy lpm "
        "--attention-backend fa3 --enable-metrics --enable-cache-report --trust-remote-code "
        "--host 0.0.0.0 --port 30000",
        // llama.cpp's short names.
        "-m models/heddle-tiny -c 4096 -t 2 --parallel 4 -b 512 --seed 7 --schedule-timeout 30",
        "-m models/heddle-tiny -ngl 99 -cb -fa -ctk f16 -ctv f16 --jinja --temp 0.6 --top-p 0.95 "
        "--top-k 20 --min-p 0 --repeat-penalty 1.1 --alias tiny -v --no-mmap --mlock",
        "-hf models/heddle-tiny --gpu-layers 20 --flash-attn on --cont-batching --verbose",
        "-fa models/heddle-tiny --temp .7 --top-p 1.",
        "--model models/heddle-tiny --disable-log-requests --uds /tmp/heddle.sock "
        "--default-chat-template-kwargs {\"enable_thinking\":false} --generation-config auto",
        "--model-path models/heddle-tiny --enable-piecewise-cuda-graph --enable-cudagraph-gc "
        "--enable-torch-compile-debug-mode --max-mamba-cache-size 64 --mamba-full-memory-ratio 0.9 "
        "--prefill-attention-backend fa3 --decode-attention-backend flashinfer "
        "--moe-runner-backend triton",
        "-m models/heddle-tiny -ub 512 -tb 4 -sm none -mg 0 -kvu --no-context-shift --no-warmup "
        "--slots --props --cache-reuse 256 --numa distribute --swa-full",
        "--model models/heddle-tiny --async-scheduling --max-seq-len-to-capture 8192 "
        "--compilation-config 3 --chat-template-content-format auto "
        "--distributed-executor-backend mp --enable-prompt-tokens-details",
        // As the articles of ../shared/seeds start SGLang, but for --tp.
        "--model models/heddle-tiny --enable-piecewise-cuda-graph "
        "--enable-torch-compile-debug-mode",
        "--model-path models/heddle-tiny --mamba-scheduler-strategy extra_buffer",
        "models/heddle-tiny --enable-piecewise-cuda-graph --piecewise-cuda-graph-compiler eager",
        "models/heddle-tiny --enable-piecewise-cuda-graph True --piecewise-cuda-graph-compiler "
        "inductor --enable-torch-compile-debug-mode False --mem-fraction-static 0.8 "
        "--piecewise-cuda-graph-max-tokens 512 --tp 1",
        "models/heddle-tiny --piecewise-cuda-graph-tokens 1,2,4,8,16,32,64,128,256"}) {
    const Outcome outcome = try_serve(line);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  }
}

// Tables of options write a state after what changes nothing.
TEST(ServeOptionsTest, StatesAfterFlagsThatChangeNothingAreNoted) {
  for (const char* const flag :
       {"--async-scheduling", "--enable-chunked-prefill", "--trust-remote-code", "--swa-full"}) {
    for (const char* const state : {"", " True", " False", "=false"}) {
      const Outcome outcome = try_serve(fmt::format("models/heddle-tiny {}{}", flag, state));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
      EXPECT_THAT(outcome.errors, HasSubstr(fmt::format("note: {} changes nothing", flag)));
    }
  }
}

// The words of the commands in `text` that start SGLang: of their lines, which end with a
// backslash, and of lists of arguments in Python. A comment ends a line.
std::vector<std::string> start_commands(std::istream& text) {
  std::vector<std::string> commands;
  const std::regex list_item(R"re("(-[^"]*|[^"]*)"\s*,)re");
  std::string line;
  bool in_command = false;
  bool in_list = false;
  while (std::getline(text, line)) {
    line.erase(std::min(line.find('#'), line.size()));
    const size_t launch = line.find("-m sglang.launch_server");
    if (launch != std::string::npos) {
      in_command = true;
      commands.emplace_back();
      line.erase(0, launch + std::string_view("-m sglang.launch_server").size());
    } else if (line.find("other_args=[") != std::string::npos) {
      in_list = true;
      commands.emplace_back();
    }
    if (in_command) {
      const size_t backslash = line.rfind('\\');
      in_command = backslash != std::string::npos;
      // "...", which stands for more, ends a command and a line of prose may follow it.
      line.erase(std::min({backslash, line.find("..."), line.size()}));
      commands.back() += " " + line;
    } else if (in_list) {
      in_list = line.find(']', line.find('[') == std::string::npos ? 0 : line.size()) ==
                std::string::npos;
      for (std::sregex_iterator item(line.begin(), line.end(), list_item), end; item != end; ++item)
        commands.back() += " " + (*item)[1].str();
    }
  }
  return commands;
}

TEST(ServeOptionsTest, StartCommandsOfTheSeedsAreTakenWithoutTheirRanks) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "seeds");
  const std::regex ranks(R"( --tp(-size)? \d+)");
  const std::regex model(R"( --model(-path)? \S+)");
  size_t num_commands = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string command : start_commands(file)) {
      command = std::regex_replace(command, std::regex(R"(\s+)"), " ");
      command = std::regex_replace(command, ranks, "");
      command = std::regex_replace(command, model, "");
      const size_t last = command.find_last_not_of(' ');
      command.erase(last == std::string::npos ? 0 : last + 1);
      const Outcome outcome = try_serve("models/heddle-tiny" + command);
      EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.errors;
      ++num_commands;
    }
  }
  EXPECT_GE(num_commands, 4U);
}

// Names of options, and what follows each of them in a command line.
struct Spellings {
  std::string_view names;
  const char* rest;
};

constexpr Spellings kSpellings[] = {
    // The server's.
    {"--host", "0.0.0.0"},
    {"--socket-mode --socket-group", "660 --host unix:/run/s"},
    {"--port -p", "80"},
    {"--ssl-certfile", "c --ssl-keyfile k"},
    {"--served-model-name --alias -a", "m"},
    {"--weight-version --root-path --fastapi-root-path --profile-path --file-storage-path", "/v1"},
    {"--allow-any-model-name --no-allow-any-model-name --log-requests --enable-log-requests "
     "--api-docs --no-api-docs --metrics --enable-metrics --no-metrics --disable-metrics "
     "--json-whitespace --no-json-whitespace --constrained-json-disable-any-whitespace "
     "--incremental-streaming-output --stream-output",
     ""},
    {"--api-key --admin-api-key", "key"},
    {"--key-storage-share", "0.5 --api-keys-file keys"},
    {"--cache-isolation", "tenant"},
    {"--cors-allow-origins --allowed-origins --cors-allow-headers --allowed-headers "
     "--allowed-hosts --access-log-exclude --uvicorn-access-log-exclude-prefixes",
     "none"},
    {"--error-format", "sglang"},
    {"--overload-status", "429"},
    {"--log-requests-level --metrics-tenants", "3"},
    {"--log-requests-format --log-format", "json"},
    {"--log-requests-target", "stdout"},
    {"--max-request-bytes --file-storage-bytes", "1000000"},
    {"--sse-keepalive-secs --stream-commit-secs --shutdown-drain-delay-secs "
     "--shutdown-timeout-secs --watchdog-timeout --queue-timeout-secs --schedule-timeout "
     "--running-timeout-secs",
     "10"},
    {"--tokenizer-threads --max-thinking-tokens --max-logprobs --max-stop --stream-interval", "1"},
    {"--fair-key", "api-key --policy fair"},
    {"--tool-call-parser", "qwen"},
    {"--reasoning-parser", "qwen3"},
    {"--thinking-budget-message", "Enough."},
    {"--reasoning-field", "both"},
    {"--max-tokens-overflow", "clamp"},
    {"--sampling-defaults", "openai"},
    {"--preferred-sampling-params --override-generation-config --chat-template-kwargs "
     "--default-chat-template-kwargs",
     "{}"},
    {"--metrics-names", "sglang"},
    // Options of the model and the machine.
    {"--model --model-path --model-id -m -hf --hf-repo", "models/heddle-tiny"},
    {"--load-format --dtype --kv-cache-dtype --device --attention-backend "
     "--speculative-algorithm",
     "auto"},
    {"--quantization", "none"},
    {"--exact --enable-deterministic-inference --disable-cuda-graph --enforce-eager "
     "--disable-piecewise-cuda-graph --cuda-graph-debug",
     ""},
    {"--context-length --max-model-len --max-total-length --ctx-size -c --max-total-tokens "
     "--max-running-requests --max-num-seqs --max-concurrent-requests -np --parallel "
     "--max-queued-requests --max-queued-tokens --chunked-prefill-tokens --chunked-prefill-size "
     "--max-num-batched-tokens --batch-size -b --max-prefill-tokens "
     "--piecewise-cuda-graph-max-tokens",
     "64"},
    {"--chat-template --chat-template-file", "template.jinja"},
    {"--tp -tp --tp-size --tensor-parallel-size", "2 --device cpu"},
    {"--collective-timeout", "30 --tp 2 --device cpu"},
    {"--random-seed --seed --threads -t --page-size --block-size --tenant-max-running "
     "--tenant-max-queued",
     "1"},
    {"--memory-fraction --mem-fraction-static --gpu-memory-utilization", "0.5"},
    {"--lora-paths --lora-modules --lora", "fox=folder"},
    {"--enable-lora", ""},
    {"--max-loras-per-batch --max-loras --max-lora-rank", "4 --enable-lora"},
    // Scheduling.
    {"--policy --schedule-policy --scheduling-policy", "lpm"},
    {"--conservativeness --schedule-conservativeness --target-itl-ms", "1"},
    {"--mixed-batches --enable-mixed-chunk --no-mixed-batches --disable-mixed-chunk --overlap "
     "--no-overlap --disable-overlap-schedule --enable-priority --enable-priority-scheduling "
     "--reject-priority-when-disabled --abort-on-priority-when-disabled",
     ""},
    {"--prefills-per-decode --decode-interleave", "2 --no-mixed-batches"},
    {"--cache-aware-max-wait-secs", "2 --policy lpm"},
    {"--low-values-first --schedule-low-priority-values-first --preemption --no-preemption "
     "--disable-priority-preemption",
     "--enable-priority"},
    {"--default-priority --default-priority-value --preemption-threshold "
     "--priority-scheduling-preemption-threshold --max-preemptions --preemption-min-run-secs "
     "--priority-aging-secs",
     "1 --enable-priority"},
    {"--fair-cost-input --fair-cost-output --fair-cost-cached", "1 --policy fair"},
    // Cache and drafts.
    {"--prefix-cache --no-prefix-cache --disable-radix-cache --enable-prefix-caching "
     "--no-enable-prefix-caching --cache-prompt --no-cache-prompt",
     ""},
    {"--state-snapshots --state-checkpoints --mamba-scheduler-strategy", "extra_buffer"},
    {"--snapshot-interval --checkpoint-interval --mamba-track-interval", "128"},
    {"--state-cache-dtype", "bfloat16"},
    {"--eviction --radix-eviction-policy", "lru"},
    {"--speculative-draft-model-path --model-draft",
     "models/heddle-tiny --speculative-algorithm standalone"},
    {"--speculative-num-steps", "1"},
    {"--speculative-num-draft-tokens", "2"},
    {"--speculative-eagle-topk", "2 --speculative-num-draft-tokens 8"},
    {"--log-level", "warn"},
};

std::vector<std::string> split_at_blanks(std::string_view line) {
  std::istringstream words{std::string(line)};
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(ServeOptionsTest, EverySpellingOfAnOptionOrASettingStartsAServer) {
  std::set<std::string> tried = {"--config", "--ssl-keyfile", "--api-keys-file"};
  for (const auto& [names, rest] : kSpellings) {
    for (const std::string& name : split_at_blanks(names)) {
      const bool needs_socket = name == "--socket-group";
      const Outcome outcome =
          run_captured(kServe, split_at_blanks(fmt::format(
                                   "{} {}", name, needs_socket ? "g --host unix:/run/s" : rest)));
      EXPECT_EQ(outcome.exit_code, 0) << name << " " << rest << "\n" << outcome.errors;
      tried.insert(name);
    }
  }
  for (const DeclaredOption& option : declared_options(kServe)) {
    if (option.familiar) continue;
    for (const std::string& name : option.names) EXPECT_TRUE(tried.contains(name)) << name;
  }
}

TEST(ServeOptionsTest, EverySpellingThatChangesNothingIsNoted) {
  using enum FamiliarOption::Kind;
  int num_noted = 0;
  for (const FamiliarOption& option : familiar_options()) {
    const bool is_flag = option.kind == kFlag || option.kind == kOptional;
    if (!is_flag && option.kind != kValue && option.kind != kNumbers) continue;
    std::vector<std::string> words = {std::string(option.name)};
    const std::string_view taken = option.taken.empty() ? "1" : option.taken;
    if (!is_flag) words.emplace_back(taken.substr(0, taken.find(' ')));
    const Outcome outcome = run_captured(kServe, words);
    EXPECT_EQ(outcome.exit_code, 0) << option.name << "\n" << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr(fmt::format("{} changes nothing", option.name)));
    ++num_noted;
  }
  EXPECT_GT(num_noted, 100);
}

TEST(ServeOptionsTest, SettingsThatFewNeedAreNotedAmongTheOptions) {
  EXPECT_THAT(try_serve("--fair-cost-input=3 --policy fair").errors,
              HasSubstr("note: --fair-cost-input is for tuning; a file of --config has it"));
  EXPECT_THAT(try_serve("--disable-overlap-schedule").errors,
              HasSubstr("note: --disable-overlap-schedule is for tuning"));
  EXPECT_EQ(try_serve("--page-size 32 -- models/heddle-tiny").errors, "");
}

TEST(ServeOptionsTest, ABackendOfAnotherServerSaysWhichOneItIs) {
  EXPECT_EQ(try_serve("--attention-backend fa3").errors,
            "note: --attention-backend fa3 is auto here\n");
  EXPECT_EQ(try_serve("--attention-backend torch_native").errors,
            "note: --attention-backend torch_native is plain here\n");
  EXPECT_EQ(try_serve("--attention-backend plain").errors, "");
}

TEST(ServeOptionsTest, OptionsOfOtherServersWithTheirValuesMeanOptionsHere) {
  const auto settings = std::make_shared<ServeSettings>();
  static std::shared_ptr<ServeSettings> read;
  read = settings;
  const Subcommand command = {.name = "serve", .summary = "", .declare = [](Options& options) {
                                declare_serve_options(options, *read);
                                return std::function<int()>([] { return 0; });
                              }};
  const Outcome outcome = run_captured(command, {"-v", "--uds", "/run/heddle.sock", "--temp", "0.5",
                                                 "--top-k=7", "--alias", "tiny"});
  read.reset();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(settings->model.log_level, "debug");
  EXPECT_EQ(settings->server.http.host, "unix:/run/heddle.sock");
  EXPECT_EQ(settings->server.answers.preferred_sampling_params,
            R"({"temperature": 0.5, "top_k": 7})");
  EXPECT_EQ(settings->served_model_names, std::vector<std::string>{"tiny"});
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("note: -v is --log-level debug here"),
                                    HasSubstr("note: --uds is --host unix:/run/heddle.sock here"),
                                    HasSubstr("note: --alias is --served-model-name here")));
}

TEST(ServeOptionsTest, OptionsThatHeddleHasNoMatchForAreRefusedWithARemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"-fa off", "off cannot be; the kernels are Heddle's own"},
      {"-ctk q8_0", "q8_0 cannot be; --kv-cache-dtype"},
      {"--cache-type-v q4_0", "q4_0 cannot be; --kv-cache-dtype"},
      {"-nocb", "there is no option -nocb: --max-running-requests 1"},
      {"--generation-config vllm", "vllm cannot be; --sampling-defaults openai"},
      {"--enable-memory-saver", "stop it and start it again"},
      {"--mmproj file.gguf", "pictures are not served"},
      {"--temp", "--temp needs a value"},
      {"--temp warm", "--temp: warm is not a number"},
      {"--temp 0.5 --preferred-sampling-params {}", "--temp and --preferred-sampling-params both"},
      {"--uds", "--uds needs a value"},
      {"-to 600", "there is no option -to: --queue-timeout-secs"},
      {"-ts 1,1", "there is no option -ts: the whole model is computed in one place"},
      {"-cmoe", "there is no option -cmoe"},
      {"-md folder", "there is no option -md: --speculative-algorithm"},
      {"-n 128", "there is no option -n: requests say it"},
      {"--reasoning-budget 0", "max_thinking_tokens"},
      {"--rope-scaling {}", "config.json"},
  };
  for (const auto& [line, remedy] : cases) {
    const Outcome outcome = try_serve(line);
    EXPECT_EQ(outcome.exit_code, kExitUsage) << line;
    EXPECT_THAT(outcome.errors, HasSubstr(remedy)) << line;
  }
}

TEST(ServeOptionsTest, WithWhatTheyNeedTheyAreTaken) {
  for (const char* line :
       {"--prefills-per-decode 4 --no-mixed-batches", "--cache-aware-max-wait-secs 1 --policy lpm",
        "--low-values-first --default-priority 3 --policy priority --max-preemptions 1",
        "--enable-priority --no-preemption", "--reject-priority-when-disabled",
        "--fair-cost-input 3 --policy fair --fair-key api-key",
        "--tenant-max-queued 3 --fair-key header:x-tenant", "--state-cache-dtype int8",
        "--metrics-names sglang", "--no-prefix-cache", "--no-metrics", "--speculative-num-steps 3",
        "--speculative-algorithm ngram --speculative-num-draft-tokens 4",
        "--speculative-algorithm ngram --speculative-num-draft-tokens 8 --speculative-eagle-topk 3",
        "--speculative-algorithm nextn --speculative-num-steps 3 "
        "--speculative-num-draft-tokens 4"}) {
    EXPECT_EQ(try_serve(line).exit_code, 0) << line;
  }
}

std::function<int()> declare_and_apply(Options& options) {
  auto settings = std::make_shared<ServeSettings>();
  settings->model.model_dir = heddle::testing::repository_path("models/heddle-tiny").string();
  declare_serve_options(options, *settings);
  return [settings] {
    const Status status = apply(*settings);
    if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
    return status.ok() ? 0 : 1;
  };
}

TEST(ServeOptionsTest, ErrorsFoundAfterParsingNameTheirOptionToo) {
  const Subcommand command = {.name = "serve", .summary = "", .declare = declare_and_apply};
  const auto errors = [&command](std::vector<std::string> arguments) {
    return run_captured(command, std::move(arguments)).errors;
  };
  EXPECT_THAT(errors({"--fair-key", "bogus", "--policy", "fair"}),
              HasSubstr("--fair-key: \"bogus\" is not known"));
  for (const char* nothing : {"", ",", " , "}) {
    EXPECT_THAT(errors({"--served-model-name", nothing}),
                HasSubstr("--served-model-name has no name in it"))
        << nothing;
  }
  EXPECT_THAT(
      errors({"--dp", "1", "--trust-remote-code"}),
      AllOf(HasSubstr("note: --dp changes nothing"),
            HasSubstr("note: --trust-remote-code changes nothing"), Not(HasSubstr("error"))));
  EXPECT_THAT(errors({"--cuda-graph-max-bs", "8"}), HasSubstr("steps of every size are captured"));
  EXPECT_THAT(errors({"--cuda-graph-sizes", "1", "2"}),
              HasSubstr("steps of every size are captured"));
  EXPECT_THAT(errors({"--piecewise-cuda-graph-tokens", "1,2,4"}),
              AllOf(HasSubstr("changes nothing"), Not(HasSubstr("error"))));
  EXPECT_EQ(errors({"--disable-piecewise-cuda-graph"}),
            "note: --disable-piecewise-cuda-graph is --piecewise-cuda-graph-max-tokens 0 here\n");
  EXPECT_THAT(errors({"--speculative-accept-threshold-acc", "1.0"}),
              AllOf(HasSubstr("changes nothing"), Not(HasSubstr("error"))));
  EXPECT_THAT(errors({"--speculative-accept-threshold-single", "0.9"}),
              HasSubstr("0.9 cannot be; thresholds below 1 change the text"));
  EXPECT_THAT(errors({"--mem-fraction-static", "0.8", "--memory-fraction", "0.5"}),
              HasSubstr("--memory-fraction"));
  EXPECT_THAT(errors({"--mem-fraction-static", "1.5"}), HasSubstr("1.5 is not a number above 0"));
  EXPECT_THAT(errors({"--dp", "2"}), HasSubstr("one process"));
  for (const char* variables : {"[]", "{", "enable_thinking=false", "7"}) {
    EXPECT_THAT(errors({"--chat-template-kwargs", variables}),
                AllOf(HasSubstr("--chat-template-kwargs: "), HasSubstr("is no JSON object")))
        << variables;
  }
  EXPECT_THAT(errors({"--chat-template-kwargs", R"({"messages": []})"}),
              HasSubstr("it cannot set messages"));
  EXPECT_THAT(errors({"--tool-call-parser", "bogus"}),
              HasSubstr("--tool-call-parser: there is no format \"bogus\"; there are none, qwen"));
  EXPECT_THAT(errors({"--reasoning-parser", "bogus"}),
              HasSubstr("--reasoning-parser: there is no format \"bogus\""));
  EXPECT_EQ(errors({"--tool-call-parser", "hermes", "--reasoning-parser", "deepseek-r1"}), "");
  EXPECT_EQ(errors({"--served-model-name", "a, b", "--fair-key", "user", "--policy", "fair"}), "");
  EXPECT_THAT(errors({"--policy", "best"}),
              HasSubstr("--policy = \"best\" does not exist; choose one of fcfs, lpm, "));
}

TEST(ServeOptionsTest, NumbersAreCheckedAsTheyAreRead) {
  EXPECT_THAT(try_serve("--target-itl-ms -5").errors,
              HasSubstr("--target-itl-ms: -5 is not a number"));
  EXPECT_THAT(try_serve("--watchdog-timeout -1").errors,
              HasSubstr("--watchdog-timeout: -1 is not"));
  EXPECT_THAT(try_serve("--chunked-prefill-tokens 0").errors,
              HasSubstr("--chunked-prefill-tokens: 0 is not a whole number from 1 to 65536"));
}

TEST(ServeOptionsTest, ALevelOfTheLogIsOneOfThoseKnown) {
  for (const char* const level : {"warning", "warn", "auto"}) {
    EXPECT_EQ(try_serve(std::string("--log-level ") + level).exit_code, 0) << level;
  }
  EXPECT_EQ(try_serve("--log-level loud").exit_code, kExitUsage);
}

TEST(ServeOptionsTest, OriginsAndHostsOfWebPagesAreRead) {
  const auto read = [](std::vector<std::string> origins, std::vector<std::string> hosts,
                       ServeSettings& settings) {
    settings.model.model_dir = heddle::testing::repository_path("models/heddle-tiny").string();
    settings.cors_origins = std::move(origins);
    settings.allowed_hosts = std::move(hosts);
    return apply(settings).message();
  };
  const std::pair<std::vector<std::string>, std::vector<std::string>> lists[] = {
      {{}, {"*"}},
      {{"none"}, {}},
      {{"HTTPS://A.example:443,app://b"}, {"https://a.example", "app://b"}},
      {{R"(["*", "http://b:8080"])"}, {"*", "http://b:8080"}}};
  for (const auto& [given, expected] : lists) {
    ServeSettings settings;
    EXPECT_EQ(read(given, {"llm.example,*.inner.example"}, settings), "");
    EXPECT_EQ(settings.server.cors.origins, expected);
    EXPECT_EQ(settings.server.allowed_hosts,
              (std::vector<std::string>{"llm.example", "*.inner.example"}));
  }
  const auto error = [&read](std::vector<std::string> origins, std::vector<std::string> hosts) {
    ServeSettings wrong;
    return read(std::move(origins), std::move(hosts), wrong);
  };
  EXPECT_THAT(error({"a.example"}, {}),
              HasSubstr("--cors-allow-origins: \"a.example\" is no origin"));
  EXPECT_THAT(error({"https://a.example/"}, {}), HasSubstr("https://page.example:8443"));
  EXPECT_THAT(error({}, {"http://a.example"}),
              HasSubstr("--allowed-hosts: \"http://a.example\" is no name"));
  EXPECT_THAT(error({}, {"a.example:80"}), HasSubstr("without a scheme and a port"));
}

TEST(ServeOptionsTest, LoggingOfRequestsIsSwitchedOnAndShaped) {
  for (const char* const line : {"--log-requests", "--log_requests --log-requests-level 0",
                                 "--log-requests --log-requests-level 3 --log-requests-format json",
                                 "--log-requests-format text --log-requests-target stdout",
                                 "--log-requests --log-requests-target folder"}) {
    EXPECT_EQ(try_serve(line).exit_code, 0) << line;
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"--log-requests-level 4", "--log-requests-level: 4 is not a whole number from 0 to 3"},
      {"--log-requests-level -1", "--log-requests-level: -1 is not"},
      {"--log-requests-level much", "--log-requests-level: much is not"},
      {"--log-requests-format xml", "--log-requests-format"},
      {"--log-requests-target=", "--log-requests-target"},
  };
  for (const auto& [line, complaint] : wrong) {
    const Outcome outcome = try_serve(line);
    EXPECT_EQ(outcome.exit_code, kExitUsage) << line;
    EXPECT_THAT(outcome.errors, HasSubstr(complaint)) << line;
  }
}

// Writes a file of options; returns the command line that names it.
std::string config_line(const std::string& text) {
  const std::string path = ::testing::TempDir() + "options_serve_test.yaml";
  std::ofstream(path) << text;
  return "--config " + path;
}

TEST(ConfigFileTest, HasTheNamesOfTheOptionsAndTheCommandLineWins) {
  const std::string file = config_line(
      "port: 70\nhost: 0.0.0.0\nmetrics: false\nmax_request_bytes: 5\n"
      "served-model-name: [a, b]\nscheduling-policy: lpm\n");
  EXPECT_EQ(try_serve(file).exit_code, 0);
  EXPECT_EQ(try_serve(file + " -p 80").exit_code, 0);
  EXPECT_EQ(try_serve(file + " --port=80 --no-metrics").exit_code, 0);
  EXPECT_EQ(try_serve(config_line(R"({"port": 70, "metrics": true})")).exit_code, 0);
  EXPECT_EQ(
      try_serve(config_line("temp: 0.7\nverbose: true\nuds: /tmp/s\njinja: true\n")).exit_code, 0);
  EXPECT_EQ(try_serve(config_line("verbose: false")).errors, "");
  EXPECT_EQ(try_serve(config_line("")).exit_code, 0);
  EXPECT_EQ(try_serve(file + " --port 80 --port 81").exit_code, 0) << "the last one holds";
}

TEST(ConfigFileTest, IsHeldToWhatTheCommandLineIsHeldTo) {
  const std::pair<const char*, const char*> cases[] = {
      {"port: 70000", "70000 is not a whole number"},
      {"prot: 70", "unknown option --prot; did you mean --port?"},
      {"metrics: [", "line "},
      {"- port", "options by name"},
      {"port:\n  a: 1", R"({"a":1} is not a whole number)"},
      {"port:", "line 1: port has no value"},
      {"--port: 70", "without dashes"},
      {"config: other.yaml", "cannot name another"},
      {"port: 8000\nprot: 70", "line 2: unknown option --prot; did you mean --port?"},
      {"\n\nmetrics-tenants: many", "line 3: --metrics-tenants: many is not a whole number"},
      {"port: 70\nport-of-call: 1", "line 2: unknown option --port-of-call"},
      {"policy: best", "line 1: --policy"},
      {"temp: 0.5\npreferred-sampling-params: {top_k: 3}",
       "--temp and --preferred-sampling-params"},
      {"{\"port\": 1,\n \"policy\": \"best\"}", "line 2: --policy"},
      {"help: true", "help stands on a command line"},
      {"tuning: 3", "line 1: tuning has to hold settings by name"},
      {"tuning:\n  port: 70", "line 2: port is an option and no key of tuning"},
      {"tuning:\n  ovrlap: true", "line 2: unknown option --ovrlap; did you mean --overlap?"},
      {"port: 70\ntuning: {fair-cost-input: x}", "line 2: --fair-cost-input: x is not a number"},
      {"tuning: {fair_cost_input: 3}", "line 1: --fair-cost-input has no effect with this policy"},
      {"tuning:\n  tuning: {}", "line 2: unknown option --tuning"},
  };
  for (const auto& [text, complaint] : cases) {
    const Outcome outcome = try_serve(config_line(text));
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_THAT(outcome.errors, HasSubstr(complaint)) << text;
  }
  EXPECT_THAT(try_serve("--config /no/such/file").errors, HasSubstr("there is no such file"));
}

}  // namespace
}  // namespace heddle::tools
