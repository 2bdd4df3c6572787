// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: the text a model reads for a conversation, as the model's own template writes it.
//
// Looks up the template of a model folder, supplies the variables transformers supplies, and
// chooses among several templates of one model.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>
#include <heddle/status.h>

#include "chat/chat_template.h"
#include "chat/template.h"
#include "tokenizer/tokenizer.h"

namespace heddle::chat {

struct ChatTemplateOptions {
  // The template to use instead of the model's: a .jinja file, or a .json file with
  // "chat_template".
  std::optional<std::filesystem::path> template_file;
  RenderLimits limits;
  std::function<std::tm()> local_now = local_time_now;  // the time strftime_now shows
};

// The form in which a template gets a call's arguments that a message has as text.
enum class ArgumentsForm : uint8_t {
  kAsSent,  // the text
  kValues,  // the values written in it (spelled_json.h)
};

// Threading: immutable after load; many threads may call render concurrently if local_now allows
// it.
class ChatTemplate {
 public:
  // In this order: options.template_file; chat_template.jinja in `model_dir`; chat_template in
  // chat_template.json; chat_template in tokenizer_config.json, a string, a list of {name,
  // template} or an object of templates by name; the metadata of a GGUF file
  // (tokenizer/gguf_tokenizer.h). A place whose template cannot be used is passed
  // over with a line of the log, and a second one that differs is logged. Special tokens come from
  // the tokenizer's files (tokenizer/tokenizer_config.h). Error, where no place can be used:
  // kNotFound, naming the remedies, when there is no template or none of several is the main one;
  // kInvalidArgument with line and column for one that does not parse; kDataLoss for a file that is
  // not JSON or not of this form, or as file_exists() (core/file_presence.h).
  static Result<ChatTemplate> load(const std::filesystem::path& model_dir,
                                   const ChatTemplateOptions& options = {});

  // A template given as text, without special tokens.
  static Result<ChatTemplate> from_source(std::string source,
                                          const ChatTemplateOptions& options = {});

  // `messages` is an array of objects, `tools` an array or null. `extra_variables` is an object or
  // null: more variables, which may replace any but messages and tools. A message of role developer
  // is rendered as system when the template does not know that role. `report` may be null. Error:
  // kInvalidArgument; see Template::render and RenderReport for raise_exception.
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           bool add_generation_prompt,
                                           const nlohmann::ordered_json& extra_variables,
                                           RenderReport* report = nullptr,
                                           ArgumentsForm arguments = ArgumentsForm::kAsSent) const;

  // Whether the model has another template for conversations with tools.
  [[nodiscard]] bool has_tool_template() const { return with_tools_.has_value(); }

  // Empty when the model has none.
  [[nodiscard]] const std::string& bos_token() const;
  [[nodiscard]] const std::string& eos_token() const;

  // The text of the template used when there are tools or not: parsers and servers look into it,
  // for example for the name of a thinking switch.
  [[nodiscard]] const std::string& source(bool with_tools = false) const;

 private:
  struct SpecialToken {
    std::string name;  // "bos_token"
    std::string text;
  };

  ChatTemplate(Template main, std::optional<Template> with_tools,
               std::vector<SpecialToken> special_tokens, ChatTemplateOptions options)
      : main_(std::move(main)),
        with_tools_(std::move(with_tools)),
        special_tokens_(std::move(special_tokens)),
        options_(std::move(options)) {}

  [[nodiscard]] const Template& template_for(bool with_tools) const {
    return with_tools && with_tools_ ? *with_tools_ : main_;
  }

  Template main_;
  std::optional<Template> with_tools_;  // a template named tool_use
  std::vector<SpecialToken> special_tokens_;
  ChatTemplateOptions options_;
};

// Role boundaries are the positions where the messages of a rendered conversation begin, in tokens.
// Conversations diverge there: another user's question after the same system prompt, another answer
// to the same question. The cache keeps state snapshots at such positions.
//
// Templates announce every message with the same special token (<|im_start|>, <|start_header_id|>,
// <start_of_turn>). The generation prompt announces the answer and begins with that token, so it is
// found without knowing the model. Templates without a generation prompt, or with one that is plain
// text, have no role token.

// The special token with which the template's generation prompt begins, none if it does not.
// Renders a short conversation twice.
[[nodiscard]] std::optional<TokenId> find_role_token(const ChatTemplate& chat_template,
                                                     const tokenizer::Tokenizer& tokenizer);

// Positions of `role_token` in `prompt`, ascending, except 0, before which nothing could be shared.
[[nodiscard]] std::vector<int64_t> role_boundaries(std::span<const TokenId> prompt,
                                                   TokenId role_token);

}  // namespace heddle::chat
