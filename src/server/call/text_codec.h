// SPDX-License-Identifier: Apache-2.0
// TextCodec: text to token ids and back, messages to prompt text. The server's view of tokenizer/
// and chat/, so that the API can be tested without a vocabulary.
//
// Threading: thread-safe; encode() and render_chat() run on several workers at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/constraint.h>
#include <heddle/request.h>
#include <heddle/status.h>

#include "grammar/grammar.h"
#include "grammar/thinking_budget.h"
#include "server/call/infill_marks.h"
#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {
class Tokenizer;
}  // namespace heddle::tokenizer

namespace heddle::server {

class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // Special tokens written out in the text are recognised.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                            bool add_special_tokens) const = 0;

  // The same for a text of at most `max_tokens` tokens. False when it has more, which is found out
  // without encoding much beyond them (tokenizer/tokenizer.h); `ids` is of no use then.
  // `is_cancelled` may be null. Error: also kCancelled, when it said so.
  [[nodiscard]] virtual Result<bool> encode_at_most(
      std::string_view text, size_t max_tokens, bool add_special_tokens,
      const tokenizer::CancellationCheck* is_cancelled, std::vector<TokenId>& ids) const = 0;

  // Ids must be within the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> tokens,
                                           bool skip_special_tokens) const = 0;

  // The bytes one token stands for; not always whole characters.
  [[nodiscard]] virtual std::string token_bytes(TokenId token) const = 0;

  // Where messages begin in a prompt (chat/chat_template.h).
  [[nodiscard]] virtual std::vector<int64_t> role_boundaries(
      std::span<const TokenId> prompt) const = 0;

  // Runs the chat template. `tools` is a list or null; `variables` an object of further ones.
  // Error: kInvalidArgument with the template's own complaint, kUnimplemented without a template.
  [[nodiscard]] virtual Result<std::string> render_chat(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables) const = 0;

  // Renders a client's conversation so that every text of it is in the prompt
  // (chat/conversation.h): parts and arguments of calls are as the client sent them.
  // `part_separator` stands between the parts of a message where the template reads no lists.
  // Error: that of render_chat(), or kInvalidArgument for a text that the template leaves out.
  [[nodiscard]] virtual Result<std::string> render_conversation(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables,
      std::string_view part_separator) const;

  // Whether a prompt that render_conversation() makes has the names of the tools.
  [[nodiscard]] virtual bool shows_tools() const { return true; }

  // Whether compile() of this form is a look-up; null: whether limit_reasoning() is.
  [[nodiscard]] virtual bool is_compiled(const grammar::GrammarSource* source) const {
    (void)source;
    return true;
  }

  // The form of an answer, over the tokens that are text; `ending_tokens` end an answer.
  // They are the model's: the same in every call. Cost: grammar::compile() the first time; the
  // first call of all reads the vocabulary, some 0.2 s. `check` may be null.
  // Error: that of grammar::compile(); kUnimplemented where there is no vocabulary.
  [[nodiscard]] virtual Result<std::shared_ptr<const Constraint>> compile(
      const grammar::GrammarSource& source, std::span<const TokenId> ending_tokens,
      const grammar::CompileCheck* check = nullptr) const {
    (void)source;
    (void)ending_tokens;
    (void)check;
    return unimplemented("there is no vocabulary to hold an answer to a form with");
  }

  // An answer whose reasoning ends after a number of tokens; `form` holds it further and may be
  // null. The marks' tokens and `ending` are this codec's own. Cost: but for the first call of all,
  // as compile()'s, O(1). Error: kUnimplemented where there is no vocabulary.
  [[nodiscard]] virtual Result<std::shared_ptr<const Constraint>> limit_reasoning(
      grammar::ThinkingBudgetOptions budget, std::shared_ptr<const Constraint> form,
      std::span<const TokenId> ending_tokens) const {
    (void)budget;
    (void)form;
    (void)ending_tokens;
    return unimplemented("there is no vocabulary to end an answer's reasoning with");
  }

  // None where the model fills no gap between two texts.
  [[nodiscard]] virtual std::optional<InfillMarks> infill_marks() const { return std::nullopt; }

  // For Prometheus: what compile() has done. Empty before its first call.
  [[nodiscard]] virtual std::string metrics_text() const { return {}; }

  // The chat template as it is written, with and without tools; empty without one. It shows how the
  // model writes calls and reasoning.
  [[nodiscard]] virtual std::string chat_template_source() const { return {}; }
};

// The codec of a model's own files. `tokenizer` outlives it; a missing chat template is a warning
// now and an error of render_chat() later. `chat_template` names a file to use instead of the
// model's; empty: the model's.
Result<std::unique_ptr<TextCodec>> make_model_codec(const std::filesystem::path& model_dir,
                                                    const tokenizer::Tokenizer& tokenizer,
                                                    const std::filesystem::path& chat_template);

}  // namespace heddle::server
