// SPDX-License-Identifier: Apache-2.0
#include "server/scripted_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/tensor.h"

namespace heddle::server {
namespace {

using ScriptJson = nlohmann::ordered_json;

constexpr TokenId kEndOfTurn = 256;

// How byte-level vocabularies spell a byte: printable ones as they are, others from U+0100 on.
std::string byte_letter(unsigned char byte) {
  const auto is_kept = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int code = byte;
  if (!is_kept(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_kept(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string spelled(std::string_view bytes) {
  std::string letters;
  for (const char c : bytes) letters += byte_letter(static_cast<unsigned char>(c));
  return letters;
}

// The tokens of a model, and which of them follows which.
struct ScriptTokens {
  std::map<std::string, TokenId> pieces;    // by their bytes, those of one byte too
  std::map<std::string, TokenId> specials;  // added ones, by their text
  std::map<TokenId, TokenId> successors;
  TokenId size = 0;
};

class ScriptCutter {
 public:
  explicit ScriptCutter(const ScriptedModel& model) : model_(model) {
    for (int byte = 0; byte < 256; ++byte) {
      tokens_.pieces[std::string(1, static_cast<char>(byte))] = byte;
    }
    tokens_.size = kEndOfTurn;
    for (const char* const text : {"<|eot|>", "<|im_start|>", "<|im_end|>"}) add_special(text);
    for (const std::string& text : model.special_tokens) add_special(text);
    for (const std::string& text : model.added_tokens) add_special(text);
  }

  ScriptTokens cut() {
    for (const auto& [key, text] : model_.scripts) {
      const auto special = tokens_.specials.find(key);
      EXPECT_TRUE(special != tokens_.specials.end() || key.size() == 1) << key;
      const TokenId first = special != tokens_.specials.end()
                                ? special->second
                                : static_cast<unsigned char>(key.empty() ? 0 : key.front());
      EXPECT_FALSE(tokens_.successors.contains(first)) << "two scripts begin behind " << key;
      TokenId before = first;
      for (const TokenId token : tokens_of(text)) {
        tokens_.successors[before] = token;
        before = token;
      }
      tokens_.successors[before] = kEndOfTurn;
    }
    return std::move(tokens_);
  }

 private:
  void add_special(const std::string& text) { tokens_.specials.emplace(text, tokens_.size++); }

  // The special token that stands first in the text; of two there the longer.
  [[nodiscard]] std::pair<size_t, std::string> next_special(std::string_view text) const {
    std::pair<size_t, std::string> first = {text.size(), ""};
    for (const auto& [special, token] : tokens_.specials) {
      if (used_.contains(special)) continue;
      const size_t place = std::min(text.find(special), text.size());
      if (place < first.first ||
          (place == first.first && place < text.size() && special.size() > first.second.size())) {
        first = {place, special};
      }
    }
    return first;
  }

  std::vector<TokenId> tokens_of(std::string_view text) {
    std::vector<TokenId> result;
    while (!text.empty()) {
      const auto [place, special] = next_special(text);
      cut_pieces(text.substr(0, place), result);
      text.remove_prefix(place);
      if (special.empty()) continue;
      used_.insert(special);
      result.push_back(tokens_.specials.at(special));
      text.remove_prefix(special.size());
    }
    return result;
  }

  [[nodiscard]] bool is_new(const std::string& piece) const {
    return !tokens_.pieces.contains(piece) && !tokens_.specials.contains(piece);
  }

  void cut_pieces(std::string_view text, std::vector<TokenId>& result) {
    std::vector<std::string> pieces;
    const auto is_free = [&](const std::string& piece) {
      return is_new(piece) && std::ranges::find(pieces, piece) == pieces.end();
    };
    while (!text.empty()) {
      size_t size = std::min(model_.piece_bytes[turn_++ % model_.piece_bytes.size()], text.size());
      while (size < text.size() && !is_free(std::string(text.substr(0, size)))) ++size;
      std::string piece(text.substr(0, size));
      // The rest stands elsewhere: it joins the piece before.
      while (!is_free(piece) && !pieces.empty()) {
        piece = pieces.back() + piece;
        pieces.pop_back();
      }
      EXPECT_TRUE(is_free(piece)) << "another script has \"" << piece << "\", or it is one byte";
      pieces.push_back(std::move(piece));
      text.remove_prefix(size);
    }
    for (std::string& piece : pieces) {
      const TokenId token = tokens_.size++;
      result.push_back(token);
      tokens_.pieces.emplace(std::move(piece), token);
    }
  }

  const ScriptedModel& model_;
  ScriptTokens tokens_;
  std::set<std::string> used_;  // special tokens that stand in a script
  size_t turn_ = 0;
};

ScriptJson tokenizer_file(const ScriptTokens& tokens, const ScriptedModel& model) {
  ScriptJson vocabulary = ScriptJson::object();
  for (const auto& [bytes, token] : tokens.pieces) vocabulary[spelled(bytes)] = token;
  ScriptJson added = ScriptJson::array();
  for (const auto& [text, token] : tokens.specials) {
    added.push_back(
        {{"id", token},
         {"content", text},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", std::ranges::find(model.added_tokens, text) == model.added_tokens.end()}});
  }
  ScriptJson byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", std::move(vocabulary)},
            {"merges", ScriptJson::array()}}}};
}

ScriptJson config_file(int64_t size, int64_t context_length) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", size},
          {"hidden_size", size},
          {"intermediate_size", 64},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 64},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"max_position_embeddings", context_length},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"eos_token_id", kEndOfTurn}};
}

Tensor ones(int64_t size, float value) {
  Tensor tensor({size}, DType::kBf16);
  std::ranges::fill(tensor.span<Bf16>(), to_bf16(value));
  return tensor;
}

// The hidden size is the vocabulary's. A token's logit is some 32 where it follows, else 0, so that
// nothing else is drawn at any usual temperature.
void write_weights(const std::filesystem::path& path, const ScriptTokens& tokens, int64_t size) {
  std::map<std::string, Tensor> weights;
  const std::string layer = "model.layers.0.";
  const auto add_zeros = [&](const std::string& name, int64_t rows, int64_t columns) {
    weights.emplace(layer + name, Tensor({rows, columns}, DType::kBf16));
  };
  add_zeros("self_attn.q_proj.weight", 128, size);
  add_zeros("self_attn.k_proj.weight", 64, size);
  add_zeros("self_attn.v_proj.weight", 64, size);
  add_zeros("self_attn.o_proj.weight", size, 128);
  add_zeros("mlp.gate_proj.weight", 64, size);
  add_zeros("mlp.up_proj.weight", 64, size);
  add_zeros("mlp.down_proj.weight", size, 64);
  weights.emplace(layer + "input_layernorm.weight", ones(size, 1));
  weights.emplace(layer + "post_attention_layernorm.weight", ones(size, 1));
  weights.emplace("model.norm.weight", ones(size, 1));
  Tensor embedding({size, size}, DType::kBf16);
  Tensor head({size, size}, DType::kBf16);
  const float scale = 32 / std::sqrt(static_cast<float>(size));  // the norm makes it 32
  for (int64_t token = 0; token < size; ++token) {
    embedding.span<Bf16>()[static_cast<size_t>(token * size + token)] = to_bf16(1);
    const auto found = tokens.successors.find(static_cast<TokenId>(token));
    const int64_t next = found == tokens.successors.end() ? kEndOfTurn : found->second;
    head.span<Bf16>()[static_cast<size_t>(next * size + token)] = to_bf16(scale);
  }
  weights.emplace("model.embed_tokens.weight", std::move(embedding));
  weights.emplace("lm_head.weight", std::move(head));
  std::vector<checkpoint::NamedTensor> named;
  for (const auto& [name, tensor] : weights) named.push_back({name, tensor.view()});
  const Status status = checkpoint::write_safetensors(path, named);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

constexpr std::string_view kMessages =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{{ m.content if m.content is string else (m.content | tojson) }}"
    "{%- if m.reasoning_content %}[reasoning {{ m.reasoning_content }}]{% endif %}"
    "{%- for t in m.tool_calls or [] %}[call {{ t.function.name }} "
    "{{ t.function.arguments | tojson }}]{% endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}";

}  // namespace

std::string ScriptedModel::written_template() const {
  if (!chat_template.empty()) return chat_template;
  std::string text(kMessages);
  if (!opening.empty()) {
    text += "{{ " + ScriptJson(opening).dump() + " }}";
  } else {
    ScriptJson keys = ScriptJson::array();
    for (const auto& [key, script] : scripts) keys.push_back(key);
    text +=
        "{%- set last = messages[-1].content %}{%- set key = last[-1:] if last is string else "
        "'' %}{{ key if key in " +
        keys.dump() + " else " + keys.front().dump() + " }}";
  }
  return text + "{% endif %}";
}

std::vector<std::string> ScriptedModel::pieces_of(const std::string& script) const {
  const ScriptTokens tokens = ScriptCutter(*this).cut();
  std::map<TokenId, std::string> texts;
  for (const auto* const named : {&tokens.pieces, &tokens.specials}) {
    for (const auto& [text, token] : *named) texts[token] = text;
  }
  const auto special = tokens.specials.find(script);
  TokenId token = special != tokens.specials.end() ? special->second : tokens.pieces.at(script);
  std::vector<std::string> pieces;
  while ((token = tokens.successors.at(token)) != kEndOfTurn) pieces.push_back(texts[token]);
  return pieces;
}

void ScriptedModel::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  const ScriptTokens tokens = ScriptCutter(*this).cut();
  const int64_t size = (tokens.size + 63) / 64 * 64;
  write_weights(folder / "model.safetensors", tokens, size);
  std::map<std::string, ScriptJson> files = {
      {"config.json", config_file(size, context_length)},
      {"generation_config.json", {{"eos_token_id", kEndOfTurn}}},
      {"tokenizer.json", tokenizer_file(tokens, *this)},
      {"tokenizer_config.json",
       {{"tokenizer_class", "Qwen2Tokenizer"},
        {"eos_token", "<|eot|>"},
        {"chat_template", written_template()}}}};
  for (const auto& [name, change] : file_changes) files[name].merge_patch(change);
  for (const auto& [name, value] : files) {
    std::ofstream file(folder / name, std::ios::binary);
    file << value.dump();
    EXPECT_TRUE(file.good()) << name;
  }
}

}  // namespace heddle::server
