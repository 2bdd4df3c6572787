// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/json.h"
#include "chat/spelled_json.h"
#include "checkpoint/gguf_model.h"
#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::chat {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kToolTemplate = "tool_use";
constexpr std::string_view kDefaultTemplate = "default";

// Templates of one model with their names; a model's only template has the name "default".
using NamedSources = std::vector<std::pair<std::string, std::string>>;

const std::string* find_source(const NamedSources& sources, std::string_view name) {
  const std::string* last = nullptr;  // as in Python, the last of several templates with one name
                                      // is used
  for (const auto& [known, source] : sources) {
    if (known == name) last = &source;
  }
  return last;
}

Result<bool> is_file(const fs::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(path));
  std::error_code error;
  return exists && fs::is_regular_file(path, error);
}

// Removes templates that consist of white space only.
void drop_empty(NamedSources& sources) {
  std::erase_if(sources, [](const auto& named) {
    return named.second.find_first_not_of(" \t\r\n") == std::string::npos;
  });
}

// Reads "chat_template" of a JSON file: absent, a string, a list of {name, template}, or an object
// of templates by name.
Result<NamedSources> templates_in(const fs::path& path) {
  const auto read = [&path]() -> Result<NamedSources> {
    NamedSources sources;
    HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::load(path));
    const JsonValue root = document.root();
    if (!root.is_object()) return root.wrong("an object");
    const std::optional<JsonValue> found = root.find("chat_template");
    if (!found) return sources;
    if (found->is_string()) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view source, found->as_string());
      sources.emplace_back(kDefaultTemplate, source);
      return sources;
    }
    if (found->is_object()) {
      HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, found->as_object());
      for (const auto [name, value] : members) {
        const JsonValue member(value, fmt::format("{}.{}", found->path(), name));
        HEDDLE_ASSIGN_OR_RETURN(const std::string_view source, member.as_string());
        sources.emplace_back(name, source);
      }
      return sources;
    }
    if (!found->is_array()) return found->wrong("a string or a list of {name, template}");
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> entries, found->items());
    Status broken;
    for (const JsonValue& entry : entries) {
      Result<std::string> name = entry.require_string("name");
      Result<std::string> source = entry.require_string("template");
      if (name.ok() && source.ok()) {
        sources.emplace_back(std::move(name).value(), std::move(source).value());
      } else {
        broken = name.ok() ? source.status() : name.status();
      }
    }
    if (broken.ok()) return sources;
    if (find_source(sources, kDefaultTemplate) == nullptr) return broken;
    log_warning(fmt::format("{}: {}; that template is left out", path.string(), broken.message()));
    return sources;
  };
  Result<NamedSources> sources = read();
  if (!sources.ok()) return sources.status().with_context(path.string());
  return sources;
}

// Reads a .jinja file. Its beginning may be '<', although HTML error pages also begin like that.
Result<std::string> read_template(const fs::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(std::string source, read_whole_file(path));
  for (const std::string_view page : {"<!DOCTYPE html", "<!doctype html", "<html"}) {
    if (!source.starts_with(page)) continue;
    return data_loss(fmt::format("{}: the file is an HTML page; download it again", path.string()));
  }
  return source;
}

// Reads the template file that the user names.
Result<NamedSources> templates_of_file(const fs::path& path) {
  if (path.extension() != ".json") {
    HEDDLE_ASSIGN_OR_RETURN(std::string source, read_template(path));
    return NamedSources{{std::string(kDefaultTemplate), std::move(source)}};
  }
  HEDDLE_ASSIGN_OR_RETURN(NamedSources sources, templates_in(path));
  if (sources.empty())
    return not_found(fmt::format("{}: it has no \"chat_template\"", path.string()));
  return sources;
}

// Reads chat_template.jinja, and the template for tools in additional_chat_templates. The result is
// empty if there is no chat_template.jinja.
Result<NamedSources> templates_of_jinja_files(const fs::path& model_dir) {
  NamedSources sources;
  const fs::path file = model_dir / "chat_template.jinja";
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, is_file(file));
  if (!exists) return sources;
  HEDDLE_ASSIGN_OR_RETURN(std::string source, read_template(file));
  sources.emplace_back(kDefaultTemplate, std::move(source));
  const fs::path for_tools = model_dir / "additional_chat_templates" / "tool_use.jinja";
  HEDDLE_ASSIGN_OR_RETURN(const bool has_tools, is_file(for_tools));
  if (has_tools) {
    HEDDLE_ASSIGN_OR_RETURN(std::string tool_source, read_template(for_tools));
    sources.emplace_back(kToolTemplate, std::move(tool_source));
  }
  return sources;
}

// The error for a model without a template. It says what a client or an operator can do.
Status no_template(const fs::path& model_dir) {
  return not_found(fmt::format(
      "{}: the model has no chat template: there is no chat_template.jinja, no chat_template.json "
      "and no \"chat_template\" in tokenizer_config.json or the metadata of a GGUF file. Give one "
      "with --chat-template FILE, put "
      "a "
      "chat_template.jinja into the folder, or use the completions API with text you format "
      "yourself",
      model_dir.string()));
}

// The main template of one source and, if it exists, the template for conversations with tools.
using ParsedTemplates = std::vector<Template>;

// `file` is where the templates come from. Error: kNotFound if none of several templates is the
// main one; kInvalidArgument for one that does not parse.
Result<ParsedTemplates> parse_templates(const NamedSources& sources, const fs::path& file,
                                        const RenderLimits& limits) {
  const std::string* main_source = find_source(sources, kDefaultTemplate);
  if (main_source == nullptr && sources.size() == 1) main_source = &sources.front().second;
  if (main_source == nullptr) {
    std::string names;
    for (const auto& [name, source] : sources) names += (names.empty() ? "" : ", ") + name;
    return not_found(
        fmt::format("{}: none of the model's chat templates ({}) is named default; write the one "
                    "that is meant to a file and name that with --chat-template FILE",
                    file.string(), names));
  }
  const ParseOptions options{.trim_blocks = true, .lstrip_blocks = true, .limits = limits};
  ParsedTemplates templates;
  HEDDLE_ASSIGN_OR_RETURN(Template main, Template::parse(*main_source, "chat_template", options));
  templates.push_back(std::move(main));
  if (const std::string* source = find_source(sources, kToolTemplate); source != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(Template with_tools,
                            Template::parse(*source, "chat_template[tool_use]", options));
    templates.push_back(std::move(with_tools));
  }
  return templates;
}

// The sources of a model's template, in transformers' order, and the key of a GGUF file.
constexpr std::string_view kInGguf = "tokenizer.chat_template";
constexpr std::string_view kPlaces[] = {"chat_template.jinja", "chat_template.json",
                                        "tokenizer_config.json", kInGguf};

Result<NamedSources> templates_of_gguf(const fs::path& model_dir) {
  HEDDLE_ASSIGN_OR_RETURN(const auto path, checkpoint::find_gguf(model_dir));
  if (!path) return NamedSources();
  HEDDLE_ASSIGN_OR_RETURN(const auto model, checkpoint::GgufModel::open(*path));
  Result<NamedSources> sources = tokenizer::gguf_chat_templates(model.metadata());
  if (!sources.ok()) return sources.status().with_context(path->string());
  return sources;
}

Result<NamedSources> templates_at(const fs::path& model_dir, std::string_view place) {
  if (place == kPlaces[0]) return templates_of_jinja_files(model_dir);
  if (place == kInGguf) return templates_of_gguf(model_dir);
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, is_file(model_dir / place));
  return exists ? templates_in(model_dir / place) : NamedSources();
}

// Uses the first source with usable templates; a later one that differs or is unusable is logged.
// Error: that of the first source if none is usable.
Result<ParsedTemplates> templates_of_model(const fs::path& model_dir, const RenderLimits& limits) {
  ParsedTemplates chosen;
  NamedSources chosen_sources;
  std::string_view chosen_place;
  // pairs (source of a template, why it cannot be used)
  std::vector<std::pair<std::string_view, Status>> unusable;
  for (const std::string_view place : kPlaces) {
    Result<NamedSources> sources = templates_at(model_dir, place);
    if (sources.ok()) drop_empty(*sources);
    if (sources.ok() && sources->empty()) continue;
    if (!chosen.empty() && sources.ok()) {
      if (*sources != chosen_sources) {
        log_warning(fmt::format("{} has two chat templates: that of {} is used, that of {} is not",
                                model_dir.string(), chosen_place, place));
      }
      continue;
    }
    Status status = sources.status();
    if (status.ok()) {
      Result<ParsedTemplates> parsed = parse_templates(*sources, model_dir / place, limits);
      status = parsed.status();
      if (parsed.ok()) {
        chosen = std::move(parsed).value();
        chosen_sources = std::move(*sources);
        chosen_place = place;
      }
    }
    if (!status.ok()) unusable.emplace_back(place, std::move(status));
  }
  if (chosen.empty()) return unusable.empty() ? no_template(model_dir) : unusable.front().second;
  for (const auto& [place, status] : unusable) {
    log_warning(fmt::format("the chat template is that of {}; that of {} cannot be used: {}",
                            chosen_place, place, status.message()));
  }
  return chosen;
}

Status check_messages(const Json& messages) {
  if (!messages.is_array()) return invalid_argument("messages must be a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object())
      return invalid_argument(fmt::format("messages[{}] must be an object", i));
  }
  return {};
}

bool is_developer(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && role->is_string() &&
         role->get_ref<const std::string&>() == "developer";
}

// Converts `json` to a value. If it is an object, `convert` converts its member `name`.
template <typename Convert>
Result<Value> value_with_member(const Json& json, std::string_view name, const Convert& convert) {
  if (!json.is_object() || !json.contains(name)) return value_from_json(json);
  std::vector<Dict::Entry> entries;
  entries.reserve(json.size());
  for (const auto& [key, member] : json.get_ref<const Json::object_t&>()) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, key == name ? convert(member) : value_from_json(member));
    HEDDLE_ASSIGN_OR_RETURN(Value key_value, value_from_json(Json(key)));
    entries.emplace_back(std::move(key_value), std::move(value));
  }
  return make_dict(nullptr, std::move(entries));
}

Result<Value> arguments_value(const Json& arguments) {
  if (!arguments.is_string()) return value_from_json(arguments);
  return value_from_arguments(arguments.get<std::string>());
}

Result<Value> call_values(const Json& calls) {
  if (!calls.is_array()) return value_from_json(calls);
  std::vector<Value> values;
  values.reserve(calls.size());
  for (const Json& call : calls) {
    HEDDLE_ASSIGN_OR_RETURN(Value value,
                            value_with_member(call, "function", [](const Json& function) {
                              return value_with_member(function, "arguments", arguments_value);
                            }));
    values.push_back(std::move(value));
  }
  return make_list(nullptr, std::move(values));
}

Result<Value> message_values(const Json& messages, bool knows_developer, ArgumentsForm arguments) {
  HEDDLE_RETURN_IF_ERROR(check_messages(messages));
  std::vector<Value> values;
  values.reserve(messages.size());
  const auto convert = [&](const Json& message) -> Result<Value> {
    if (arguments == ArgumentsForm::kAsSent) return value_from_json(message);
    return value_with_member(message, "tool_calls", call_values);
  };
  for (const Json& message : messages) {
    if (knows_developer || !is_developer(message)) {
      HEDDLE_ASSIGN_OR_RETURN(Value value, convert(message));
      values.push_back(std::move(value));
      continue;
    }
    Json renamed = message;
    renamed["role"] = "system";
    HEDDLE_ASSIGN_OR_RETURN(Value value, convert(renamed));
    values.push_back(std::move(value));
  }
  return make_list(nullptr, std::move(values));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const fs::path& model_dir,
                                        const ChatTemplateOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const tokenizer::TokenizerConfig tokenizer_config,
                          tokenizer::load_tokenizer_config(model_dir));
  const auto parse = [&]() -> Result<ParsedTemplates> {
    if (!options.template_file) return templates_of_model(model_dir, options.limits);
    HEDDLE_ASSIGN_OR_RETURN(const NamedSources sources, templates_of_file(*options.template_file));
    return parse_templates(sources, *options.template_file, options.limits);
  };
  HEDDLE_ASSIGN_OR_RETURN(ParsedTemplates templates, parse());
  std::vector<SpecialToken> special_tokens;
  for (const auto& [name, text] : tokenizer_config.special_tokens) {
    special_tokens.push_back({.name = name, .text = text});
  }
  std::optional<Template> with_tools;
  if (templates.size() > 1) with_tools = std::move(templates[1]);
  return ChatTemplate(std::move(templates[0]), std::move(with_tools), std::move(special_tokens),
                      options);
}

Result<ChatTemplate> ChatTemplate::from_source(std::string source,
                                               const ChatTemplateOptions& options) {
  const ParseOptions parse_options{
      .trim_blocks = true, .lstrip_blocks = true, .limits = options.limits};
  HEDDLE_ASSIGN_OR_RETURN(Template main,
                          Template::parse(std::move(source), "chat_template", parse_options));
  return ChatTemplate(std::move(main), std::nullopt, {}, options);
}

Result<std::string> ChatTemplate::render(const Json& messages, const Json& tools,
                                         bool add_generation_prompt, const Json& extra_variables,
                                         RenderReport* report, ArgumentsForm arguments) const {
  if (!tools.is_null() && !tools.is_array())
    return invalid_argument("tools must be a list or null");
  const Template& chosen = template_for(tools.is_array() && !tools.empty());
  std::vector<Dict::Entry> variables;  // a later entry of the same name replaces an earlier one
  const auto set = [&variables](std::string name, Value value) {
    variables.emplace_back(Value::string(std::move(name)), std::move(value));
  };
  for (const SpecialToken& token : special_tokens_) set(token.name, Value::string(token.text));
  set("documents", Value::none());
  set("add_generation_prompt", Value::boolean(add_generation_prompt));
  if (!extra_variables.is_null()) {
    if (!extra_variables.is_object())
      return invalid_argument("the template's extra variables must be an object");
    for (const auto& [name, json] : extra_variables.items()) {
      if (name == "messages" || name == "tools") {
        return invalid_argument(
            fmt::format("the template's variable '{}' cannot be replaced", name));
      }
      HEDDLE_ASSIGN_OR_RETURN(Value value, value_from_json(json));
      set(name, std::move(value));
    }
  }
  const bool knows_developer = chosen.source().find("developer") != std::string::npos;
  HEDDLE_ASSIGN_OR_RETURN(Value message_list, message_values(messages, knows_developer, arguments));
  set("messages", std::move(message_list));
  HEDDLE_ASSIGN_OR_RETURN(Value tool_list, value_from_json(tools));
  set("tools", std::move(tool_list));
  HEDDLE_ASSIGN_OR_RETURN(const Value context, make_dict(nullptr, std::move(variables)));
  return chosen.render(context, options_.limits, options_.local_now, report);
}

const std::string& ChatTemplate::bos_token() const {
  static const std::string kNone;
  for (const SpecialToken& token : special_tokens_) {
    if (token.name == "bos_token") return token.text;
  }
  return kNone;
}

const std::string& ChatTemplate::eos_token() const {
  static const std::string kNone;
  for (const SpecialToken& token : special_tokens_) {
    if (token.name == "eos_token") return token.text;
  }
  return kNone;
}

const std::string& ChatTemplate::source(bool with_tools) const {
  return template_for(with_tools).source();
}

std::optional<TokenId> find_role_token(const ChatTemplate& chat_template,
                                       const tokenizer::Tokenizer& tokenizer) {
  const nlohmann::ordered_json question = {{{"role", "user"}, {"content", "Hi"}}};
  const auto bare = chat_template.render(question, nullptr, false, nullptr);
  const auto prompted = chat_template.render(question, nullptr, true, nullptr);
  if (!bare.ok() || !prompted.ok() || !prompted->starts_with(*bare)) return std::nullopt;
  const auto tokens = tokenizer.encode(std::string_view(*prompted).substr(bare->size()),
                                       {.add_special_tokens = false});
  if (!tokens.ok() || tokens->empty() || !tokenizer.is_special(tokens->front())) {
    return std::nullopt;
  }
  return tokens->front();
}

std::vector<int64_t> role_boundaries(std::span<const TokenId> prompt, TokenId role_token) {
  std::vector<int64_t> boundaries;
  for (size_t i = 1; i < prompt.size(); ++i) {
    if (prompt[i] == role_token) boundaries.push_back(static_cast<int64_t>(i));
  }
  return boundaries;
}

}  // namespace heddle::chat
