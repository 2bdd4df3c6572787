// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: renders a conversation to the text that a model reads, with the model's own
// template.
//
// It finds the template in the model's folder, supplies the variables that transformers supplies,
// and chooses among several templates of one model.
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
  std::function<std::tm()> local_now = local_time_now;  // returns the time that strftime_now prints
};

// The form in which a template receives a call's arguments if a message has them as text.
enum class ArgumentsForm : uint8_t {
  kAsSent,  // the text as the client sent it
  kValues,  // the values that the text represents (spelled_json.h)
};

// Threading: immutable after load; many threads may call render concurrently if local_now allows
// it.
class ChatTemplate {
 public:
  // Looks for a template in this order: options.template_file; chat_template.jinja in `model_dir`;
  // chat_template in chat_template.json; chat_template in tokenizer_config.json, which is a string,
  // a list of {name, template} or an object of templates by name; the metadata of a GGUF file
  // (tokenizer/gguf_tokenizer.h). A source whose template cannot be used is skipped with a log
  // message, and so is a later one that differs. Special tokens come from the tokenizer's files
  // (tokenizer/tokenizer_config.h). Error, if no source can be used: kNotFound, naming the
  // remedies, if there is no template or none of several is the main one; kInvalidArgument with
  // line and column for one that does not parse; kDataLoss for a file that is not JSON or has
  // another structure, or as file_exists() (core/file_presence.h).
  static Result<ChatTemplate> load(const std::filesystem::path& model_dir,
                                   const ChatTemplateOptions& options = {});

  // Makes a ChatTemplate of a text, without special tokens.
  static Result<ChatTemplate> from_source(std::string source,
                                          const ChatTemplateOptions& options = {});

  // `messages` is an array of objects, `tools` an array or null. `extra_variables` is an object or
  // null: further variables, which may replace any except messages and tools. A message with role
  // developer is rendered as system if the template does not know that role. `report` may be null.
  // Error: kInvalidArgument; for raise_exception see Template::render and RenderReport.
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           bool add_generation_prompt,
                                           const nlohmann::ordered_json& extra_variables,
                                           RenderReport* report = nullptr,
                                           ArgumentsForm arguments = ArgumentsForm::kAsSent) const;

  // Whether the model has a separate template for conversations with tools.
  [[nodiscard]] bool has_tool_template() const { return with_tools_.has_value(); }

  // The bos token's text; empty if the model has none.
  [[nodiscard]] const std::string& bos_token() const;
  [[nodiscard]] const std::string& eos_token() const;

  // The source of the template for conversations with or without tools. Parsers and servers search
  // it, for example for the name of a thinking switch.
  [[nodiscard]] const std::string& source(bool with_tools = false) const;

 private:
  struct SpecialToken {
    std::string name;  // role of a special token: "bos_token"
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
  std::optional<Template> with_tools_;  // the template named tool_use; none if the model has no
                                        // such template
  std::vector<SpecialToken> special_tokens_;
  ChatTemplateOptions options_;
};

// Role boundaries are the positions, in tokens, at which the messages of a rendered conversation
// begin. Conversations diverge there: another user's question after the same system prompt, another
// answer to the same question. The cache stores state snapshots at such positions.
//
// Templates begin every message with the same special token (<|im_start|>, <|start_header_id|>,
// <start_of_turn>). The generation prompt, which begins the answer, starts with that token, so it
// is found without knowledge of the model. Templates without a generation prompt, or with one that
// is plain text, have no role token.

// The special token with which the template's generation prompt begins; none if it begins with
// text. Renders a short conversation twice.
[[nodiscard]] std::optional<TokenId> find_role_token(const ChatTemplate& chat_template,
                                                     const tokenizer::Tokenizer& tokenizer);

// Positions of `role_token` in `prompt`, ascending, without position 0, before which there is
// nothing to share.
[[nodiscard]] std::vector<int64_t> role_boundaries(std::span<const TokenId> prompt,
                                                   TokenId role_token);

}  // namespace heddle::chat
