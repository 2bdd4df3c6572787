// SPDX-License-Identifier: Apache-2.0
#include "gsm8k.h"

#include <charconv>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::tools {

namespace {

constexpr std::string_view kAnswerMark = "####";

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == line.npos; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter_or_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

nlohmann::json parse(const std::string& line) {
  return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

bool has_text(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string();
}

// The number whose digits begin at `at`, which moves behind them.
double read_number(const std::string& text, size_t& at) {
  size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    ++at;
    while (at < text.size() && is_digit(text[at])) ++at;
  }
  const bool starts_word = begin < 2 || !is_letter_or_digit(text[begin - 2]);
  if (begin > 0 && text[begin - 1] == '-' && starts_word) --begin;
  double value = 0;
  const auto parsed = std::from_chars(text.data() + begin, text.data() + at, value);
  return parsed.ec == std::errc() ? value : std::numeric_limits<double>::infinity();
}

std::optional<double> last_number(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ',') plain += c;
  }
  std::optional<double> number;
  for (size_t at = 0; at < plain.size();) {
    if (is_digit(plain[at])) {
      number = read_number(plain, at);
    } else {
      ++at;
    }
  }
  return number;
}

}  // namespace

bool is_gsm8k(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!is_blank(line)) return has_text(parse(line), "question");
  }
  return false;
}

Result<std::vector<Gsm8kExample>> read_gsm8k(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{}: cannot be read", path.string()));
  std::vector<Gsm8kExample> examples;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (is_blank(line)) continue;
    const auto where = fmt::format("{}:{}", path.string(), number);
    const nlohmann::json json = parse(line);
    if (json.is_discarded()) return data_loss(where + ": not JSON");
    if (!has_text(json, "question") || !has_text(json, "answer")) {
      return data_loss(where + ": lacks a \"question\" or an \"answer\"");
    }
    Gsm8kExample example{.question = json["question"], .answer = json["answer"]};
    const size_t mark = example.answer.rfind(kAnswerMark);
    if (mark == std::string::npos || !last_number(example.answer.substr(mark))) {
      return data_loss(fmt::format("{}: \"answer\" has no number behind {}", where, kAnswerMark));
    }
    examples.push_back(std::move(example));
  }
  if (examples.empty()) return data_loss(fmt::format("{}: has no questions", path.string()));
  return examples;
}

std::string gsm8k_prompt(std::span<const Gsm8kExample> shots, std::string_view question) {
  std::string prompt;
  for (const Gsm8kExample& shot : shots) {
    prompt += fmt::format("Question: {}\nAnswer: {}\n\n", shot.question, shot.answer);
  }
  return prompt + fmt::format("Question: {}\nAnswer:", question);
}

std::optional<double> final_number(std::string_view text) {
  const size_t mark = text.rfind(kAnswerMark);
  if (mark != std::string_view::npos) {
    if (const auto number = last_number(text.substr(mark))) return number;
  }
  return last_number(text);
}

}  // namespace heddle::tools
