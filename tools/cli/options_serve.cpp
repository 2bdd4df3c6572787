// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_serve.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parsers/formats.h"
#include "server/call/answer_form.h"
#include "server/call/chat_prompt.h"
#include "server/call/sampling_fields.h"
#include "server/call/served_adapters.h"
#include "server/http/key_ring.h"
#include "server/http/page_guard.h"
#include "server/http/web_origin.h"
#include "tools/cli/adapter_option.h"
#include "tools/cli/machine.h"

namespace heddle::tools {
namespace {

// Splits names at spaces and commas: "a b,c" contains three.
std::vector<std::string> split_names(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (size_t start = 0; start < list.size();) {
      const size_t end = std::min(list.find_first_of(" ,", start), list.size());
      if (end > start) names.push_back(list.substr(start, end - start));
      start = end + 1;
    }
  }
  return names;
}

// Converts lists in vLLM's form, R"(["a", "b"])", to names separated by commas.
std::vector<std::string> without_json(std::vector<std::string> lists) {
  for (std::string& list : lists) {
    if (!list.starts_with("[\"")) continue;
    const auto names = nlohmann::json::parse(list, nullptr, /*allow_exceptions=*/false);
    if (!names.is_array() || !std::ranges::all_of(names, &nlohmann::json::is_string)) continue;
    list.clear();
    for (const auto& name : names) list += name.get<std::string>() + ",";
  }
  return lists;
}

Status apply_parsers(ServeSettings& settings) {
  if (settings.tool_call_parser != "auto") {
    const auto format = parsers::tool_call_format(settings.tool_call_parser);
    if (!format.ok()) return format.status().with_context("--tool-call-parser");
    settings.server.tool_call_format = *format;
  }
  if (settings.reasoning_parser != "auto") {
    const auto format = parsers::reasoning_format(settings.reasoning_parser);
    if (!format.ok()) return format.status().with_context("--reasoning-parser");
    settings.server.reasoning_format = *format;
  }
  return ok_status();
}

Result<uint32_t> parse_socket_mode(std::string_view text) {
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  constexpr uint32_t kAll = 0777;
  if (error != std::errc{} || end != text.data() + text.size() || mode > kAll) {
    return invalid_argument(fmt::format(
        "--socket-mode: \"{}\" is no mode; give three octal digits: 660 for owner and group",
        text));
  }
  return mode;
}

// The limits of AdapterOptions.
constexpr ValueRange kAdapterCounts = {.low = 1, .high = 1024};
constexpr ValueRange kAdapterRanks = {.low = 1, .high = 4096};

void declare_served_adapters(Options& options, ServeSettings& settings) {
  options.heading("Adapters");
  options.value("--lora-paths,--lora-modules,--lora", &settings.adapters,
                "LoRA adapters that requests may name, on the CPU, each as NAME=FOLDER, FOLDER or "
                "{\"name\": .., \"path\": ..}; repeat for several");
  options.heading(Options::kTuning);
  options.flag("--enable-lora", &settings.enable_lora,
               "Reserve memory for LoRA adapters that are loaded later");
  options.value("--max-loras-per-batch,--max-loras", &settings.max_loras, kAdapterCounts,
                "Adapters in memory; all of them may be in one step");
  options.value("--max-lora-rank", &settings.max_lora_rank, kAdapterRanks,
                "Highest rank of an adapter; default: the highest of --lora-paths, else 64");
  options.has_effect_if(
      "--max-loras-per-batch", [&settings] { return settings.enable_lora; },
      "where no adapters are loaded later; add --enable-lora");
  options.has_effect_if(
      "--max-lora-rank", [&settings] { return settings.enable_lora || !settings.adapters.empty(); },
      "without adapters; add --enable-lora");
}

}  // namespace

void declare_serve_options(Options& options, ServeSettings& settings) {
  server::ServerOptions& server = settings.server;
  options.heading("Server");
  options.value(
      "--config", &settings.config_file,
      "File of options by these names, YAML or JSON, and of more below tuning: (docs/options.md); "
      "the command line wins");
  options.text("--host", &server.http.host, "Address to listen on, or unix:PATH for a unix socket");
  options.parsed(
      "--socket-mode", "",
      [&server](std::string_view text) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(server.http.socket_mode, parse_socket_mode(text));
        return {};
      },
      "Who may use a unix socket, in octal as chmod takes it: 660; default: 660 with "
      "--socket-group, else as the umask says");
  options.text("--socket-group", &server.http.socket_group, "Group that a unix socket belongs to");
  for (const char* name : {"--socket-mode", "--socket-group"}) {
    options.has_effect_if(
        name, [&server] { return server.http.host.starts_with(server::kUnixPrefix); },
        "without a unix socket; add --host unix:PATH");
  }
  options.value("-p,--port", &server.http.port, "Port to listen on; 0: any free one");
  options.text("--ssl-certfile", &server.http.certificate_file,
               "Certificate, with those that signed it, in PEM form: clients speak TLS");
  options.text("--ssl-keyfile", &server.http.key_file, "Its private key, in PEM form");
  options.needs("--ssl-certfile", "--ssl-keyfile");
  options.needs("--ssl-keyfile", "--ssl-certfile");
  options.has_effect_if(
      "--port", [&server] { return !server.http.host.starts_with(server::kUnixPrefix); },
      "with a unix socket; drop --host");
  options.value("--served-model-name", &settings.served_model_names,
                "Names clients know the model by, separated by commas; default: the folder's");
  options.text("--weight-version", &server.weight_version,
               "Name of the weights, shown with answers");
  options.flag("--allow-any-model-name,!--no-allow-any-model-name", &server.allow_any_model_name,
               "Serve requests that name another model (default); with no-: answer 404");
  options.value("--api-key", &settings.api_key, "Key that clients must send; default: none");
  options.value("--api-keys-file", &settings.api_keys_file,
                "File of named keys and their limits; read again at SIGHUP");
  options.value("--admin-api-key", &settings.admin_api_key,
                "Key for the routes that steer the server; default: any key may");
  options.choice(
      "--cache-isolation", &settings.cache_isolation, {"none", "tenant"},
      "tenant: tenants share no cached tokens, so that none learns of another's prompts");
  options.value("--cors-allow-origins", &settings.cors_origins,
                "Origins of web pages that may ask, separated by commas, or none; default: any. "
                "Those that are named may also steer a server without keys");
  options.value("--allowed-hosts", &settings.allowed_hosts,
                "Names by which web pages may reach a server without keys, separated by commas, "
                "beside localhost, the machine's name and --host");
  options.text("--root-path", &server.root_path,
               "Prefix that a proxy leaves before the paths, as /llm; default: none");
  options.value("--access-log-exclude", &settings.quiet_paths,
                "Prefixes of paths, separated by commas, whose requests are logged as debug");
  server::RequestLogSettings& request_log = server.request_log.settings;
  options.flag("--log-requests", &request_log.on,
               "Log each call that generates when it comes and when it ends");
  options.value("--log-requests-level", &request_log.level, ranges::kRequestLogLevel,
                "0: ids and counts; 1: sampling parameters, too; 2: and the first 2048 characters "
                "of prompts and answers; 3: everything");
  options.text("--file-storage-path", &server.file_storage_path,
               "Folder of uploaded files and of batches, which go on after a restart; default: a "
               "temporary one");
  options.has_effect_if(
      "--key-storage-share", [&settings] { return settings.api_keys_file.has_value(); },
      "without named keys; add --api-keys-file");
  options.flag("--api-docs,!--no-api-docs", &server.api_docs,
               "Describe the routes at /openapi.json and /docs (default); with no-: not");
  options.value("--shutdown-timeout-secs", &server.shutdown_timeout_seconds,
                ranges::kSecondsOrUnlimited,
                "Time for running requests when stopping; -1: unlimited");
  options.value("--shutdown-drain-delay-secs", &settings.shutdown_drain_delay_seconds,
                ranges::kPeriodSeconds,
                "At SIGTERM: time in which /readyz says 503 and requests are still taken");
  options.value("--tokenizer-threads", &server.num_workers, ranges::kWorkers,
                "Threads that parse, render and tokenize requests");
  options.value("--fair-key", &settings.fair_key,
                "Tells the tenants of --policy fair apart: user, api-key, header:NAME or none");
  options.text("--tool-call-parser", &settings.tool_call_parser,
               "Format of the model's tool calls; auto: as its chat template shows");
  options.text("--reasoning-parser", &settings.reasoning_parser,
               "Format of the model's reasoning; auto: as its chat template shows");
  options.value("--max-thinking-tokens", &server.answers.max_thinking_tokens, ranges::kCountOrNone,
                "Tokens of reasoning after which it is ended; default: as the request says");
  options.choice("--reasoning-field", &settings.reasoning_field,
                 {"reasoning_content", "reasoning", "both"},
                 "Name of the reasoning in answers of /v1/chat/completions");
  options.choice("--max-tokens-overflow", &settings.max_tokens_overflow,
                 {"by-api", "error", "clamp"},
                 "A request whose prompt and max_tokens exceed the context: refuse it, or lower "
                 "max_tokens; by-api: as the servers do whose API the route is");
  options.value("--stream-interval", &server.answers.stream_interval, ranges::kCount,
                "Tokens of one streamed event, at least, where the request does not say it");
  options.choice("--sampling-defaults", &settings.sampling_defaults, {"model", "openai"},
                 "Of requests that do not say it: the model's generation_config.json, or OpenAI's");
  options.text("--preferred-sampling-params", &server.answers.preferred_sampling_params,
               "JSON object of sampling fields that go before those defaults");
  options.text("--chat-template-kwargs", &server.answers.chat_template_kwargs,
               "JSON object of variables of the chat template that requests do not set");
  options.flag("--metrics,--enable-metrics,!--no-metrics,!--disable-metrics", &settings.metrics,
               "Count for Prometheus at /metrics (default); with no-: not");
  options.has_effect_if(
      "--metrics-tenants", [&settings] { return settings.metrics; },
      "without metrics; drop --no-metrics");
  options.has_effect_if(
      "--metrics-names", [&settings] { return settings.metrics; },
      "without metrics; drop --no-metrics");
  options.has_effect_if(
      "--fair-key",
      [&scheduling = settings.model.engine.scheduling, &metrics = settings.model.engine.metrics] {
        return scheduling.policy == QueuePolicy::kFair || metrics.max_tenants > 0 ||
               scheduling.tenant_max_running > 0 || scheduling.tenant_max_queued > 0;
      },
      "while tenants are treated alike; add --policy fair, --tenant-max-running, "
      "--tenant-max-queued or --metrics-tenants");
  options.heading(Options::kTuning);
  options.value("--cors-allow-headers", &settings.cors_headers,
                "Headers that they may send, separated by commas, or none; default: any");
  options.choice("--error-format", &settings.error_format, {"both", "openai", "sglang"},
                 "Form of errors: OpenAI's, SGLang's flat one, or an object with both");
  options.choice("--overload-status", &settings.overload_status, {"503", "429"},
                 "Status of a full queue and of a wait in it that took too long");
  options.choice("--log-requests-format", &request_log.format, server::parse_request_log_format,
                 {"text", "json"}, "Form of these lines");
  options.text("--log-requests-target", &settings.log_requests_target,
               "stdout, or the folder of a file for each day");
  options.value("--max-request-bytes", &server.http.max_request_bytes, ranges::kBytes,
                "Largest body of a request");
  options.value("--file-storage-bytes", &server.file_storage_bytes, ranges::kBytes,
                "Bytes of all files together");
  options.value("--key-storage-share", &server.key_storage_share, ranges::kShare,
                "Part of the kept responses, sessions, files and batches that one named key may "
                "fill");
  options.text("--profile-path", &server.profile_path,
               "Folder of the traces of /start_profile; default: the system's temporary one");
  options.value("--sse-keepalive-secs", &server.http.stream_keepalive_seconds,
                ranges::kPeriodSeconds,
                "Silence of a stream before a comment keeps it alive; 0: never");
  options.value("--stream-commit-secs", &server.http.stream_commit_seconds, ranges::kSeconds,
                "The latest moment for a queued stream's status line");
  options.text("--thinking-budget-message", &server.answers.thinking_budget_message,
               "Text that the model is forced to write before such an end");
  options.value("--max-logprobs", &server.answers.max_logprobs, ranges::kLogprobs,
                "Alternatives of a token that a request may ask for");
  options.value("--max-stop", &server.answers.max_stop, ranges::kStopTexts,
                "Stop texts that a request may have");
  options.flag("--incremental-streaming-output,--stream-output", &server.answers.stream_increments,
               "/generate streams what is new, not everything so far");
  options.flag("--json-whitespace,!--no-json-whitespace,!--constrained-json-disable-any-whitespace",
               &server.answers.json_whitespace,
               "Constrained JSON may have blanks between its tokens (default); with no-: none");
  options.choice("--metrics-names", &settings.model.engine.metrics.names, parse_metric_names,
                 {"heddle", "sglang"},
                 "heddle_*, or the names dashboards made for SGLang look for");
  options.value("--metrics-tenants", &settings.model.engine.metrics.max_tenants, ranges::kTenants,
                "Tenants that get counters of their own; others count as one");
  declare_engine_options(options, settings.model, ModelArgument::kOptional);
  declare_served_adapters(options, settings);
}

namespace {

Status apply_keys(ServeSettings& settings) {
  if (settings.api_key && settings.api_key->empty()) {
    return invalid_argument(
        "--api-key is empty, perhaps from a variable that is not set; give a key, or leave the "
        "option out to serve everyone");
  }
  if (settings.admin_api_key && settings.admin_api_key->empty()) {
    return invalid_argument(
        "--admin-api-key is empty, perhaps from a variable that is not set; give a key, or leave "
        "the option out so that every key may steer");
  }
  settings.server.api_key = settings.api_key.value_or("");
  settings.server.admin_api_key = settings.admin_api_key.value_or("");
  if (settings.api_keys_file) {
    settings.server.api_keys_file = *settings.api_keys_file;
    auto keys = server::read_api_keys(*settings.api_keys_file);
    if (!keys.ok()) return keys.status().with_context("--api-keys-file");
    settings.server.api_keys = *std::move(keys);
  }
  return ok_status();
}

// Refuses a URL such as "http://host:8080" as the host.
Status check_host(const std::string& host) {
  if (host.starts_with(server::kUnixPrefix)) return ok_status();
  const bool has_port = std::ranges::count(host, ':') == 1;
  if (!has_port && host.find('/') == std::string::npos) return ok_status();
  return invalid_argument(
      fmt::format("--host {}: give the name or the IP address alone; --port takes the port, and "
                  "--ssl-certfile makes it https",
                  host));
}

// Sets a list option; "none" is an empty list, and without the option `target` is unchanged.
void apply_list(const std::vector<std::string>& lists, std::vector<std::string>& target) {
  if (lists.empty()) return;
  target = split_names(without_json(lists));
  std::erase(target, "none");
}

Status apply_answers(ServeSettings& settings) {
  server::AnswerOptions& answers = settings.server.answers;
  if (settings.max_tokens_overflow == "error") {
    answers.max_tokens_overflow = server::MaxTokensOverflow::kError;
  }
  if (settings.max_tokens_overflow == "clamp") {
    answers.max_tokens_overflow = server::MaxTokensOverflow::kClamp;
  }
  if (settings.reasoning_field == "reasoning") {
    answers.reasoning_field = server::ReasoningField::kReasoning;
  }
  if (settings.reasoning_field == "both") answers.reasoning_field = server::ReasoningField::kBoth;
  answers.use_generation_config = settings.sampling_defaults == "model";
  auto message = server::read_budget_message(answers.thinking_budget_message);
  if (!message.ok()) return message.status().with_context("--thinking-budget-message");
  answers.thinking_budget_message = std::move(message).value();
  HEDDLE_RETURN_IF_ERROR(server::check_template_variables(answers.chat_template_kwargs)
                             .with_context("--chat-template-kwargs"));
  if (answers.preferred_sampling_params.empty()) return ok_status();
  return server::read_sampling_defaults(answers.preferred_sampling_params, {})
      .status()
      .with_context("--preferred-sampling-params");
}

Status apply_transport(ServeSettings& settings) {
  server::ServerOptions& server = settings.server;
  HEDDLE_RETURN_IF_ERROR(check_host(server.http.host));
  server.isolate_tenants = settings.cache_isolation == "tenant";
  apply_list(settings.cors_origins, server.cors.origins);
  for (std::string& origin : server.cors.origins) {
    HEDDLE_RETURN_IF_ERROR(
        server::check_allowed_origin(origin).with_context("--cors-allow-origins"));
    origin = server::canonical_origin(origin);
  }
  server.allowed_hosts = split_names(settings.allowed_hosts);
  for (const std::string& host : server.allowed_hosts) {
    HEDDLE_RETURN_IF_ERROR(server::check_allowed_host(host).with_context("--allowed-hosts"));
  }
  apply_list(settings.cors_headers, server.cors.headers);
  server.quiet_paths = split_names(settings.quiet_paths);
  if (settings.log_requests_target != "stdout") {
    server.request_log.folder = settings.log_requests_target;
  }
  if (settings.error_format == "openai") server.error_style = server::ErrorStyle::kOpenAi;
  if (settings.error_format == "sglang") server.error_style = server::ErrorStyle::kFlat;
  server.overload_status = settings.overload_status == "429" ? 429 : 503;
  std::string& root = server.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (!root.empty() && !root.starts_with('/')) {
    return invalid_argument(fmt::format("--root-path is {}; it begins with '/'", root));
  }
  return ok_status();
}

}  // namespace

namespace {

Status apply_served_adapters(ServeSettings& settings) {
  constexpr int32_t kUsualRank = 64;
  AdapterOptions& options = settings.model.engine.adapters;
  if (settings.adapters.empty()) options.max_rank = kUsualRank;
  for (const std::string& text : settings.adapters) {
    HEDDLE_ASSIGN_OR_RETURN(const AdapterArgument adapter, parse_adapter(text));
    HEDDLE_RETURN_IF_ERROR(server::check_adapter_name(adapter.name));
  }
  HEDDLE_RETURN_IF_ERROR(apply_adapters(settings.adapters, settings.model.engine));
  options.max_rank = settings.max_lora_rank.value_or(options.max_rank);
  if (!settings.enable_lora) return {};
  if (options.num_slots > settings.max_loras) {
    return invalid_argument(fmt::format("{} adapters are more than --max-loras-per-batch {}",
                                        options.num_slots, settings.max_loras));
  }
  options.num_slots = settings.max_loras;
  return {};
}

}  // namespace

Status apply(ServeSettings& settings) {
  HEDDLE_RETURN_IF_ERROR(apply(settings.model));
  HEDDLE_RETURN_IF_ERROR(apply_served_adapters(settings));
  HEDDLE_RETURN_IF_ERROR(apply_keys(settings));
  HEDDLE_RETURN_IF_ERROR(apply_transport(settings));
  HEDDLE_RETURN_IF_ERROR(apply_answers(settings));
  auto fair_key = server::parse_fair_key(settings.fair_key);
  if (!fair_key.ok()) return fair_key.status().with_context("--fair-key");
  settings.server.fair_key = *std::move(fair_key);
  HEDDLE_RETURN_IF_ERROR(apply_parsers(settings));
  settings.server.served_model_names = split_names(settings.served_model_names);
  if (settings.server.served_model_names.empty() && !settings.served_model_names.empty()) {
    return invalid_argument(
        "--served-model-name has no name in it, perhaps from a variable that is not set; give one, "
        "or leave the option out to use the folder's");
  }
  settings.server.metrics = settings.model.engine.metrics.enabled = settings.metrics;
  if (!settings.server.served_model_names.empty()) {
    settings.model.engine.metrics.model_name = settings.server.served_model_names.front();
  }
  settings.server.version = HEDDLE_VERSION;
  settings.server.build = {
      {"version", HEDDLE_VERSION}, {"commit", built_commit()}, {"compiler", built_with()}};
  settings.server.model_path = settings.model.engine.model_dir.string();
  return ok_status();
}

}  // namespace heddle::tools
