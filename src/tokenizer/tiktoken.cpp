// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
#include "core/remedy.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kTiktokenFile = "tiktoken.model";
constexpr TokenId kNumReserved = 256;  // special ids after the last rank, as in TikTokenTokenizer
// The longest tokens of published files have 128 bytes. The cost of a token grows with the square
// of its length.
constexpr size_t kMaxTokenBytes = 1024;

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Returns false if the text is not padded base64.
bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  for (size_t at = 0; at < text.size(); at += 4) {
    const std::string_view four = text.substr(at, 4);
    const bool is_last = at + 4 == text.size();
    const size_t num_digits = !is_last ? 4 : four[2] == '=' ? 2 : four.back() == '=' ? 3 : 4;
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int digit = digit_of(four[i]);
      if (i < num_digits ? digit < 0 : four[i] != '=') return false;
      bits = bits << 6 | (i < num_digits ? static_cast<uint32_t>(digit) : 0);
    }
    for (size_t i = 0; i + 1 < num_digits; ++i) {
      bytes.push_back(static_cast<char>(bits >> (16 - 8 * i) & 0xFF));
    }
  }
  return true;
}

Status add_line(std::string_view line, std::string& bytes, BpeBuilder& builder) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return data_loss("no rank after the token");
  if (!decode_base64(line.substr(0, space), bytes)) {
    return data_loss(fmt::format("'{}' is not base64", shown_token(line.substr(0, space))));
  }
  if (bytes.size() > kMaxTokenBytes) {
    return data_loss(fmt::format("a token of {} bytes, more than the {} that are read",
                                 bytes.size(), kMaxTokenBytes));
  }
  const std::string_view digits = line.substr(space + 1);
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return data_loss(fmt::format("the rank '{}' is not a number", shown_token(digits)));
  }
  return builder.add_bytes(bytes, rank);
}

Status add_tokens(std::string_view text, BpeBuilder& builder) {
  std::string bytes;
  builder.reserve_tokens(static_cast<size_t>(std::ranges::count(text, '\n')) + 1, text.size());
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    HEDDLE_RETURN_IF_ERROR(
        add_line(line, bytes, builder).with_context(fmt::format("line {}", number)));
  }
  return builder.add_ranked_merges();
}

bool is_kimi(const TokenizerConfig& config) {
  return config.tokenizer_class.starts_with("TikTokenTokenizer");
}

// All special tokens: the configuration's added tokens, its special tokens without a listed id, and
// Kimi's unnamed ids.
std::vector<AddedToken> special_tokens(const TokenizerConfig& config, const BpeModel& model) {
  const auto num_ranks = static_cast<TokenId>(model.vocabulary().end_id());
  std::vector<AddedToken> tokens = config.added_tokens;
  const std::vector<AddedToken> unlisted = unlisted_special_tokens(
      config, [&](const std::string& text) { return model.find_spelling(text); }, num_ranks);
  tokens.insert(tokens.end(), unlisted.begin(), unlisted.end());
  if (!is_kimi(config)) return tokens;
  std::vector<bool> has_name(kNumReserved);
  for (const AddedToken& token : tokens) {
    const int64_t index = int64_t{token.id} - num_ranks;
    if (index >= 0 && index < kNumReserved) has_name[static_cast<size_t>(index)] = true;
  }
  for (TokenId i = 0; i < kNumReserved; ++i) {
    if (has_name[static_cast<size_t>(i)]) continue;
    const TokenId id = num_ranks + i;
    tokens.push_back(
        {.id = id, .content = fmt::format("<|reserved_token_{}|>", id), .special = true});
  }
  return tokens;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(std::string_view ranks,
                                                  const TokenizerConfig& config) {
  BpeBuilder builder(/*byte_level=*/true);
  HEDDLE_RETURN_IF_ERROR(add_tokens(ranks, builder));
  BpeModel model = std::move(builder).build({.ignore_merges = true});
  std::vector<AddedToken> special = special_tokens(config, model);
  HEDDLE_ASSIGN_OR_RETURN(Regex pattern,
                          Regex::compile(is_kimi(config) ? kKimiPattern : kLlama3Pattern));
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(SplitStep{.pattern = std::move(pattern)});
  return BpeTokenizer::create({.model = std::move(model),
                               .listed_tokens = std::move(special),
                               .listed_in = config.added_tokens_file(),
                               .added_tokens = {},
                               .normalizer = {},
                               .pre_tokenizer = std::move(pre_tokenizer),
                               .decoder = {},
                               .prefix = {},
                               .suffix = {}},
                              config);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view ranks, TokenizerConfig config) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_tokenizer(ranks, config);
  if (!tokenizer.ok()) {
    return with_remedy(tokenizer.status(), kDownloadAgain).with_context(std::string(kTiktokenFile));
  }
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> load_tiktoken(const std::filesystem::path& model_dir,
                                                 TokenizerConfig config) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string ranks, read_whole_file(model_dir / kTiktokenFile));
  if (!is_kimi(config)) {
    log_warning(
        fmt::format("{} does not say how to split words and the class '{}' is not known; splitting "
                    "as Llama 3 does. A tokenizer.json would settle it.",
                    kTiktokenFile, config.tokenizer_class));
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = parse_tiktoken(ranks, std::move(config));
  if (!tokenizer.ok()) return tokenizer.status().with_context(model_dir.string());
  return tokenizer;
}

}  // namespace heddle::tokenizer
