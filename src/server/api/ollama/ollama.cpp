// SPDX-License-Identifier: Apache-2.0
#include "server/api/ollama/ollama.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "core/printable.h"
#include "server/api/openai/chat_completions.h"
#include "server/api/openai/delta_adapter.h"
#include "server/call/answer_log.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/field_reader.h"
#include "server/call/history_repair.h"
#include "server/call/infill.h"
#include "server/call/prompt_list.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

std::string rfc3339(int64_t unix_time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_time)));
}

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(std::max(0.0, seconds) * 1e9); }

// ---- The answer ----

class OllamaAdapter final : public DeltaAdapter {
 public:
  enum class Shape { kChat, kGenerate };

  OllamaAdapter(ChatAnswerOptions options, Shape shape)
      : DeltaAdapter(with_call_text(std::move(options))), shape_(shape) {}

  JsonPieces body() override {
    JsonPieces body;
    body.begin_object();
    body.key("model").value(options().model).key("created_at").value(rfc3339(options().created));
    const bool is_chat = shape_ == Shape::kChat;
    if (is_chat) body.key("message").begin_object().key("role").value("assistant");
    join_parts();
    body.key(is_chat ? "content" : "response").text(content_);
    if (!thinking_.empty()) body.key("thinking").text(thinking_);
    if (is_chat && !calls_.empty()) body.key("tool_calls").value(calls_);
    if (is_chat) body.end_object();
    if (options().logprobs) {
      body.key("logprobs").list(content_logprobs().size(), [this](size_t index, std::string& out) {
        append_token_logprob(content_logprobs(), index, *options().codec, out);
      });
    }
    const Json ending = totals();
    for (const auto& [name, value] : ending.items()) body.key(name).value(value);
    return std::move(body.end_object());
  }

  void error(const ApiError& failure, std::string& out) override {
    out += dump_json(Json{{"error", failure.message}}) + "\n";
  }

 protected:
  void begin(std::string&) override {}

  void deliver(const parsers::AnswerDelta& delta, std::string& out) override {
    if (const auto* const more = std::get_if<parsers::ReasoningDelta>(&delta)) {
      append_line("", more->text, Json(), out);
    } else if (const auto* const text = std::get_if<parsers::ContentDelta>(&delta)) {
      append_line(text->text, "", Json(), out);
    } else if (const auto* const call = std::get_if<parsers::ToolCallBegin>(&delta)) {
      call_ = {.id = call->id, .name = call->name, .arguments = {}};
    } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
      call_.arguments += arguments->json;
    } else if (const auto& end = std::get<parsers::ToolCallEnd>(delta); end.complete) {
      append_line("", "", Json::array({call_json(call_)}), out);  // emits the complete call
    } else if (!end.text.empty() && !end.cut) {
      append_line(end.text, "", Json(), out);
    }
  }

  void finish(std::string& out) override {
    Json last = line("", "", Json());
    last.erase("done");
    last.update(totals());
    out += dump_json(last) + "\n";
  }

 private:
  // Cut-off calls are shown as text. A stream can do that, because nothing of a call is sent before
  // its end.
  static ChatAnswerOptions with_call_text(ChatAnswerOptions options) {
    options.stream.parser.keep_call_text = true;
    return options;
  }

  [[nodiscard]] Json call_json(const parsers::ToolCall& call) {
    return {{"id", call.id},
            {"function",
             {{"index", num_calls_++},
              {"name", call.name},
              {"arguments", object_of_json(call.arguments)}}}};
  }

  // Joins the parts of an answer: this API has one text of each kind, and a list of calls.
  void join_parts() {
    for (const AnswerPart& part : parts()) {
      if (part.kind == AnswerPart::Kind::kContent) content_ += part.text;
      if (part.kind == AnswerPart::Kind::kReasoning) thinking_ += part.text;
      // The arguments of a call that was cut off are no JSON object.
      if (part.kind == AnswerPart::Kind::kCall && part.call.complete) {
        calls_.push_back(call_json(part.call));
      }
    }
  }

  // Log probabilities of the content's tokens that no line has shown yet.
  [[nodiscard]] Json next_logprobs() {
    std::string list = "[";
    for (size_t i = num_shown_; i < content_logprobs().size(); ++i) {
      if (i > num_shown_) list += ',';
      append_token_logprob(content_logprobs(), i, *options().codec, list);
    }
    num_shown_ = content_logprobs().size();
    return Json::parse(list + "]");
  }

  [[nodiscard]] Json line(std::string_view content, std::string_view thinking, Json calls) {
    Json value = {{"model", options().model}, {"created_at", rfc3339(options().created)}};
    Json shown = Json::object();
    if (shape_ == Shape::kChat) shown["role"] = "assistant";
    shown[shape_ == Shape::kChat ? "content" : "response"] = content;
    if (!thinking.empty()) shown["thinking"] = thinking;
    if (shape_ == Shape::kChat) {
      if (!calls.is_null()) shown["tool_calls"] = std::move(calls);
      value["message"] = std::move(shown);
    } else {
      value.update(shown);
    }
    if (content_logprobs().size() > num_shown_) value["logprobs"] = next_logprobs();
    value["done"] = false;
    return value;
  }

  void append_line(std::string_view content, std::string_view thinking, Json calls,
                   std::string& out) {
    out += dump_json(line(content, thinking, std::move(calls))) + "\n";
  }

  [[nodiscard]] Json totals() const {
    const double first = first_token_seconds();
    return {{"done", true},
            {"done_reason", finished().reason == FinishReason::kLength ? "length" : "stop"},
            {"total_duration", nanoseconds(counts().elapsed_seconds)},
            {"load_duration", 0},
            {"prompt_eval_count", counts().prompt_tokens},
            {"prompt_eval_duration", nanoseconds(first - counts().queue_seconds)},
            {"eval_count", counts().completion_tokens},
            {"eval_duration", nanoseconds(counts().elapsed_seconds - first)}};
  }

  const Shape shape_;
  parsers::ToolCall call_;  // the call that is being received
  size_t num_calls_ = 0;    // number of calls shown so far
  size_t num_shown_ = 0;    // number of content_logprobs() shown so far
  std::string content_;     // content of an answer that is not streamed
  std::string thinking_;
  Json calls_ = Json::array();
};

std::unique_ptr<ApiAdapter> make_ollama_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<OllamaAdapter>(std::move(options), OllamaAdapter::Shape::kChat);
}

std::unique_ptr<ApiAdapter> make_ollama_generate_adapter(ChatAnswerOptions options) {
  return std::make_unique<OllamaAdapter>(std::move(options), OllamaAdapter::Shape::kGenerate);
}

// ---- The request ----

// Ollama's names of sampling fields, and those of a chat.
constexpr std::pair<std::string_view, const char*> kOptionNames[] = {
    {Body::kOllamaOptions["temperature"], "temperature"},
    {Body::kOllamaOptions["top_p"], "top_p"},
    {Body::kOllamaOptions["top_k"], "top_k"},
    {Body::kOllamaOptions["min_p"], "min_p"},
    {Body::kOllamaOptions["stop"], "stop"},
    {Body::kOllamaOptions["seed"], "seed"},
    {Body::kOllamaOptions["repeat_penalty"], "repetition_penalty"},
    {Body::kOllamaOptions["presence_penalty"], "presence_penalty"},
    {Body::kOllamaOptions["frequency_penalty"], "frequency_penalty"},
};

std::optional<ApiError> read_ollama_options(const CallContext& context, FieldReader& fields,
                                            Json& chat, FieldNames& names) {
  const Json* value = fields.object(Body::kOllama["options"]);
  if (fields.error()) return fields.error();
  if (value == nullptr) return std::nullopt;
  FieldReader options(*value, "options.");
  for (const auto& [theirs, ours] : kOptionNames) {
    const Json* const option = options.find(theirs);
    if (option == nullptr) continue;
    chat[ours] = *option;
    names.add(ours, options.name_of(theirs));
  }
  const auto top_k = options.integer(Body::kOllamaOptions["top_k"]);
  if (top_k && *top_k <= 0) chat["top_k"] = -1;  // switches top_k off, as in Ollama
  const auto limit = options.integer(Body::kOllamaOptions["num_predict"]);
  if (options.error()) return options.error();
  for (const std::string& name : options.unasked()) context.note_unused("option", name);
  if (limit && *limit > 0) {  // other values mean no limit except the context
    chat["max_tokens"] = *limit;
    names.add("max_tokens", options.name_of("num_predict"));
  }
  return std::nullopt;
}

std::optional<ApiError> read_ollama_format(FieldReader& fields, Json& chat) {
  const Json* format = fields.find(Body::kOllama["format"]);
  if (format == nullptr || *format == "") return std::nullopt;
  if (*format == "json") {
    chat["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    chat["response_format"] = {{"type", "json_schema"},
                               {"json_schema", {{"name", "format"}, {"schema", *format}}}};
  } else {
    return invalid_type("format", "\"json\" or a JSON Schema");
  }
  return std::nullopt;
}

std::optional<ApiError> read_ollama_think(FieldReader& fields, Json& chat) {
  const Json* think = fields.find(Body::kOllama["think"]);
  if (think == nullptr) return std::nullopt;
  if (think->is_boolean()) {
    chat["reasoning"] = {{"enabled", *think}};
  } else if (think->is_string()) {
    const std::string level = think->get<std::string>();
    if (!is_reasoning_effort(level)) {
      return invalid_value("think", fmt::format("`think` is \"{}\"; it must be true, false, {}.",
                                                printable(level, 40), kReasoningEfforts));
    }
    chat["reasoning_effort"] = level;
  } else {
    return invalid_type("think", "a boolean or a level of effort");
  }
  return std::nullopt;
}

// Converts everything except the prompt. Fields of scheduling, which Ollama does not have, are
// copied.
std::optional<ApiError> chat_without_prompt(const CallContext& context, const Json& body,
                                            Json& chat, FieldNames& names) {
  chat = body;
  for (const char* name : {"messages", "prompt", "system", "template", "suffix", "raw", "options",
                           "format", "think", "keep_alive", "images", "context", "stream"}) {
    chat.erase(name);
  }
  FieldReader fields(body);
  chat["stream"] = fields.flag(Body::kOllama["stream"]);
  refuse_several_answers(fields);
  if (const Json* images = fields.array(Body::kOllama["images"]);
      images != nullptr && !images->empty()) {
    fields.fail(unsupported_parameter("images", "this model takes text only"));
  }
  if (!fields.flag(Body::kOllama["logprobs"])) chat.erase("top_logprobs");
  if (fields.error()) return fields.error();
  names.add("response_format", "format");
  names.add("response_format.json_schema.schema", "format");
  names.add("reasoning_effort", "think");
  names.add("reasoning", "think");
  if (auto error = read_ollama_options(context, fields, chat, names)) return error;
  if (auto error = read_ollama_format(fields, chat)) return error;
  return read_ollama_think(fields, chat);
}

PrepareResult prepare_lines(const CallContext& context, const Json& chat,
                            const MakeChatAdapter& adapter, const FieldNames& names) {
  CallContext own = context;
  MaxTokensOverflow& overflow = own.answers.max_tokens_overflow;
  if (overflow == MaxTokensOverflow::kByApi) overflow = MaxTokensOverflow::kClamp;
  PrepareResult result = prepare_chat_call(own, chat, adapter);
  if (auto* const error = std::get_if<ApiError>(&result)) names.restore(*error);
  if (auto* const call = std::get_if<PreparedCall>(&result)) {
    call->stream_format = StreamFormat::kLines;
  }
  return result;
}

// The empty answer to a client that only wants the model to be loaded.
PrepareResult answer_that_it_is_there(const CallContext& context, const std::string& model,
                                      bool is_chat) {
  JsonPieces body;
  body.begin_object().key("model").value(model);
  body.key("created_at").value(rfc3339(context.created));
  if (is_chat) {
    body.key("message").value({{"role", "assistant"}, {"content", ""}});
  } else {
    body.key("response").value("");
  }
  body.key("done").value(true).key("done_reason").value("load").end_object();
  return JsonAnswer{.body = std::move(body), .shown = nullptr};
}

}  // namespace

PrepareResult prepare_ollama_chat(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  FieldNames names;
  if (auto error = chat_without_prompt(context, object, chat, names)) return *error;
  FieldReader fields(object);
  const std::string model = read_model_name(fields, context);
  const Json* messages = fields.array(Body::kOllamaChat["messages"]);
  if (fields.error()) return *fields.error();
  if (messages == nullptr || messages->empty())
    return answer_that_it_is_there(context, model, /*is_chat=*/true);
  chat["messages"] = Json::array();
  const size_t num_past = num_past_messages(*messages);
  for (size_t i = 0; i < messages->size(); ++i) {
    Json copy = (*messages)[i];
    if (!copy.is_object()) {  // an entry that is no object is an error, or repaired later if it is
                              // in the history
      chat["messages"].push_back(std::move(copy));
      continue;
    }
    const Json images = std::exchange(copy["images"], Json());
    copy.erase("images");
    const bool has_images = !images.empty() && images != "" && images != false;
    if (has_images && i >= num_past) {
      return unsupported_parameter(fmt::format("messages[{}].images", i),
                                   "this model takes text only");
    }
    if (!copy.contains("content") || copy["content"].is_null()) copy["content"] = "";
    if (has_images && copy["content"].is_string()) {
      auto text = copy["content"].get<std::string>();
      copy["content"] = text.empty() ? "[image]" : text + " [image]";
    }
    if (copy.contains("tool_name")) {  // only a tool's result has this field
      if (!copy.contains("name")) copy["name"] = std::move(copy["tool_name"]);
      copy.erase("tool_name");
    }
    chat["messages"].push_back(std::move(copy));
  }
  return prepare_lines(context, chat, make_ollama_chat_adapter, names);
}

PrepareResult prepare_ollama_generate(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  Json chat;
  FieldNames names;
  if (auto error = chat_without_prompt(context, object, chat, names)) return *error;
  names.add("messages", "prompt");
  names.add("input_ids", "prompt");
  FieldReader fields(object);
  refuse_fields(fields, {"template", "context"});
  const std::string model = read_model_name(fields, context);
  const std::string prompt = fields.string_or_preset(Body::kOllamaGenerate["prompt"]);
  const std::string suffix = fields.string_or_preset(Body::kOllamaGenerate["suffix"]);
  const std::string system = fields.string_or_preset(Body::kOllamaGenerate["system"]);
  const bool raw = fields.flag(Body::kOllamaGenerate["raw"]);
  if (fields.error()) return *fields.error();
  if (prompt.empty() && suffix.empty())
    return answer_that_it_is_there(context, model, /*is_chat=*/false);
  if (!suffix.empty()) {
    std::vector<TokenId> ids;
    if (auto error = encode_infill(prompt, suffix, context, ids)) return *error;
    chat["input_ids"] = ids;
  } else if (raw) {
    std::vector<TokenId> ids;
    if (auto error = encode_prompt(prompt, /*add_special_tokens=*/true,
                                   max_counted_tokens(context.model), "prompt", context, ids)) {
      return *error;
    }
    chat["input_ids"] = ids;
  } else {
    chat["messages"] = Json::array();
    if (!system.empty()) chat["messages"].push_back({{"role", "system"}, {"content", system}});
    chat["messages"].push_back({{"role", "user"}, {"content", prompt}});
  }
  return prepare_lines(context, chat, make_ollama_generate_adapter, names);
}

namespace {

const std::string& family_of(const ModelInfo& model) {
  return model.family.empty() ? model.architecture : model.family;
}

Json model_details(const ModelInfo& model) {
  return {
      {"parent_model", ""},
      {"format", model.file_format},
      {"family", family_of(model)},
      {"families", Json::array({family_of(model)})},
      {"parameter_size", fmt::format("{:.1f}M", static_cast<double>(model.num_parameters) / 1e6)},
      {"quantization_level", model.quantization.empty() ? model.dtype : model.quantization}};
}

}  // namespace

Json ollama_models(const Engine& engine, const std::vector<std::string>& names,
                   const OllamaListing& listing) {
  // A hundred years in seconds: the model is never unloaded.
  constexpr int64_t kForever = int64_t{100} * 365 * 24 * 3600;
  const ModelInfo& model = engine.model_info();
  const MemoryPlan& plan = engine.memory_plan();
  const int64_t num_bytes = plan.weights_bytes + plan.mapped_weights_bytes;
  Json list = Json::array();
  for (const std::string& name : names) {
    Json entry = {{"name", name}, {"model", name}};
    if (!listing.running) entry["modified_at"] = rfc3339(listing.loaded_at);
    entry["size"] = num_bytes;
    entry["digest"] = listing.digest;
    entry["details"] = model_details(model);
    if (listing.running) {
      entry["expires_at"] = rfc3339(listing.loaded_at + kForever);
      entry["size_vram"] = model.device.starts_with("cpu") ? 0 : num_bytes;
      entry["context_length"] = model.context_length;
    }
    list.push_back(std::move(entry));
  }
  return {{"models", std::move(list)}};
}

AnswerResult answer_ollama_show(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  // Field that early clients use instead of "model".
  const auto old_name = fields.string(Body::kShow["name"]);
  if (object.find("model") == object.end() && old_name) object["model"] = *old_name;
  FieldReader named(object);
  static_cast<void>(read_model_name(named, context));
  if (fields.error()) return *fields.error();
  if (named.error()) return *named.error();
  const ModelInfo& model = context.model;
  JsonPieces answer;
  answer.begin_object().key("parameters").value("").key("template").value("");
  answer.key("details").value(model_details(model));
  answer.key("model_info")
      .value({{"general.architecture", family_of(model)},
              {"general.parameter_count", model.num_parameters},
              {fmt::format("{}.context_length", family_of(model)), model.context_length}});
  Json capabilities = Json::array({"completion"});
  if (context.formats.tool_calls != parsers::ToolCallFormat::kNone) capabilities += "tools";
  if (context.formats.reasoning != parsers::ReasoningFormat::kNone) capabilities += "thinking";
  if (context.codec.infill_marks()) capabilities += "insert";
  answer.key("capabilities").value(capabilities).end_object();
  return JsonAnswer{.body = std::move(answer), .shown = nullptr};
}

}  // namespace heddle::server
