// SPDX-License-Identifier: Apache-2.0
#include "server/call/text_codec.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "chat/conversation.h"
#include "core/log.h"
#include "core/mutex.h"
#include "grammar/grammar_cache.h"
#include "server/http/json_text.h"
#include "tokenizer/tokenizer.h"

namespace heddle::server {
namespace {

class ModelCodec final : public TextCodec {
 public:
  ModelCodec(const tokenizer::Tokenizer& tokenizer, Result<chat::ChatTemplate> chat_template)
      : tokenizer_(tokenizer), template_status_(chat_template.status()) {
    infill_marks_ = find_infill_marks(tokenizer_);
    if (!chat_template.ok()) return;
    conversations_.emplace(std::move(chat_template).value());
    role_token_ = chat::find_role_token(conversations_->chat_template(), tokenizer_);
  }

  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    bool add_special_tokens) const override {
    return tokenizer_.encode(
        text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
  }

  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens,
                                            bool add_special_tokens,
                                            const tokenizer::CancellationCheck* is_cancelled,
                                            std::vector<TokenId>& ids) const override {
    return tokenizer_.encode_at_most(text, max_tokens,
                                     {.add_special_tokens = add_special_tokens,
                                      .parse_special_tokens = true,
                                      .is_cancelled = is_cancelled},
                                     ids);
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> tokens,
                                   bool skip_special_tokens) const override {
    return tokenizer_.decode(tokens, skip_special_tokens);
  }

  [[nodiscard]] std::string token_bytes(TokenId token) const override {
    std::string bytes;
    tokenizer_.append_token_bytes(token, /*skip_special_tokens=*/false, bytes);
    return bytes;
  }

  [[nodiscard]] std::vector<int64_t> role_boundaries(
      std::span<const TokenId> prompt) const override {
    return role_token_ ? chat::role_boundaries(prompt, *role_token_) : std::vector<int64_t>();
  }

  [[nodiscard]] Result<std::string> render_chat(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables) const override {
    return render_conversation(messages, tools, add_generation_prompt, variables, " ");
  }

  [[nodiscard]] Result<std::string> render_conversation(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables,
      std::string_view part_separator) const override {
    if (!conversations_) {
      return unimplemented("the model has no usable chat template: " + template_status_.message());
    }
    return conversations_->render(messages, tools, add_generation_prompt, variables,
                                  part_separator);
  }

  [[nodiscard]] bool shows_tools() const override {
    return !conversations_ || conversations_->shows_tools();
  }

  [[nodiscard]] bool is_compiled(const grammar::GrammarSource* source) const override {
    const grammar::GrammarCache* const made = made_grammars();
    return made != nullptr && (source == nullptr || made->contains(*source));
  }

  [[nodiscard]] Result<std::shared_ptr<const Constraint>> compile(
      const grammar::GrammarSource& source, std::span<const TokenId> ending_tokens,
      const grammar::CompileCheck* check) const override {
    HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<const Constraint> constraint,
                            grammars(ending_tokens).get(source, check));
    return constraint;
  }

  [[nodiscard]] Result<std::shared_ptr<const Constraint>> limit_reasoning(
      grammar::ThinkingBudgetOptions budget, std::shared_ptr<const Constraint> form,
      std::span<const TokenId> ending_tokens) const override {
    return std::shared_ptr<const Constraint>(std::make_shared<const grammar::ThinkingBudget>(
        std::move(budget), std::move(form), grammars(ending_tokens).masks()));
  }

  [[nodiscard]] std::optional<InfillMarks> infill_marks() const override { return infill_marks_; }

  [[nodiscard]] std::string metrics_text() const override {
    const grammar::GrammarCache* const made = made_grammars();
    return made == nullptr ? std::string() : made->metrics_text();
  }

  [[nodiscard]] std::string chat_template_source() const override {
    if (!conversations_) return {};
    const chat::ChatTemplate& chat_template = conversations_->chat_template();
    return chat_template.source(/*with_tools=*/true) + chat_template.source();
  }

 private:
  // The cache of compiled constraints, created at its first use, because most servers run for long
  // before a client needs one.
  [[nodiscard]] grammar::GrammarCache& grammars(std::span<const TokenId> ending_tokens) const {
    const MutexLock one_builder(building_);  // metrics_text() does not wait for this mutex
    if (grammar::GrammarCache* const made = made_grammars()) return *made;
    std::vector<std::string> bytes(static_cast<size_t>(tokenizer_.vocab_size()));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = grammar_bytes(static_cast<TokenId>(i));
    }
    std::vector<TokenId> endings(ending_tokens.begin(), ending_tokens.end());
    if (const auto eos = tokenizer_.eos_token()) endings.push_back(*eos);
    std::erase_if(endings, [&](TokenId token) { return token >= tokenizer_.vocab_size(); });
    auto grammars = std::make_unique<grammar::GrammarCache>(
        std::make_shared<grammar::VocabularyMasks>(std::move(bytes), std::move(endings)));
    const MutexLock lock(mutex_);
    grammars_ = std::move(grammars);
    return *grammars_;
  }

  // The bytes of a token in the form that VocabularyMasks expects.
  [[nodiscard]] std::string grammar_bytes(TokenId token) const {
    std::string text;
    tokenizer_.append_token_bytes(token, /*skip_special_tokens=*/false, text);
    // Bytes that contain this mark are no UTF-8, so the token is left out.
    if (text.find(grammar::kSpecialTokenByte) != std::string::npos) return {};
    return tokenizer_.is_special(token) ? grammar::special_token_bytes(text) : text;
  }

  // The cache of compiled constraints; null until it is created, and constant afterwards.
  [[nodiscard]] grammar::GrammarCache* made_grammars() const {
    const MutexLock lock(mutex_);
    return grammars_.get();
  }

  const tokenizer::Tokenizer& tokenizer_;
  Status template_status_;
  // Null if the model has no chat template.
  std::optional<chat::ConversationRenderer> conversations_;
  std::optional<TokenId> role_token_;
  std::optional<InfillMarks> infill_marks_;
  mutable Mutex building_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<grammar::GrammarCache> grammars_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::string> TextCodec::render_conversation(const nlohmann::ordered_json& messages,
                                                   const nlohmann::ordered_json& tools,
                                                   bool add_generation_prompt,
                                                   const nlohmann::ordered_json& variables,
                                                   std::string_view part_separator) const {
  nlohmann::ordered_json plain = chat::arrange(messages, {}, part_separator);
  for (auto& message : plain) {
    if (!message.contains("tool_calls")) continue;
    for (auto& call : message["tool_calls"]) {
      auto& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) continue;
      nlohmann::ordered_json object;
      const auto error = parse_json_object(arguments.get_ref<const std::string&>(), object, "",
                                           WideNumbers::kEverywhere);
      if (!error) arguments = std::move(object);
    }
  }
  return render_chat(plain, tools, add_generation_prompt, variables);
}

Result<std::unique_ptr<TextCodec>> make_model_codec(const std::filesystem::path& model_dir,
                                                    const tokenizer::Tokenizer& tokenizer,
                                                    const std::filesystem::path& chat_template) {
  chat::ChatTemplateOptions options;
  if (!chat_template.empty()) options.template_file = chat_template;
  auto loaded = chat::ChatTemplate::load(model_dir, options);
  if (!loaded.ok() && !chat_template.empty()) return loaded.status();
  if (!loaded.ok()) {
    log_warning("Chats will be refused, completions are served: " + loaded.status().message());
  }
  return std::unique_ptr<TextCodec>(std::make_unique<ModelCodec>(tokenizer, std::move(loaded)));
}

}  // namespace heddle::server
