// SPDX-License-Identifier: Apache-2.0
#include "tools/gsm8k.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

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

// Reads the number whose digits begin at index `at`, and moves `at` past it.
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

using Json = nlohmann::ordered_json;

struct Gsm8kSet {
  std::vector<Gsm8kExample> shots;
  std::vector<Gsm8kExample> questions;
};

Result<Gsm8kSet> read_set(const std::filesystem::path& path, const Gsm8kOptions& options) {
  if (options.shots < 0 || options.num_questions < 1) {
    return invalid_argument(
        fmt::format("--shots {} must be at least 0 and --num-questions {} at least 1",
                    options.shots, options.num_questions));
  }
  const bool own_shots = options.shots_file.empty();
  Gsm8kSet set;
  HEDDLE_ASSIGN_OR_RETURN(set.questions, read_gsm8k(path));
  if (own_shots) {
    set.shots = set.questions;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(set.shots, read_gsm8k(options.shots_file));
  }
  const int64_t needed = options.shots + (own_shots ? 1 : 0);
  if (std::ssize(set.shots) < needed) {
    return invalid_argument(fmt::format("{} has {} questions: --shots {} needs at least {}",
                                        own_shots ? path.string() : options.shots_file,
                                        set.shots.size(), options.shots, needed));
  }
  set.shots.resize(static_cast<size_t>(options.shots));
  if (own_shots) set.questions.erase(set.questions.begin(), set.questions.begin() + options.shots);
  set.questions.resize(std::min(set.questions.size(), static_cast<size_t>(options.num_questions)));
  return set;
}

std::vector<Question> questions_of(const Gsm8kSet& set, const Gsm8kOptions& gsm8k) {
  std::vector<Question> questions;
  for (const Gsm8kExample& example : set.questions) {
    const std::string prompt = gsm8k_prompt(set.shots, example.question);
    Question question;
    if (gsm8k.chat) {
      question.messages = Json::array({{{"role", "user"}, {"content", prompt}}}).dump();
    } else {
      question.text = prompt;
      question.stop = kGsm8kStop;
    }
    questions.push_back(std::move(question));
  }
  return questions;
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

double Gsm8kReport::share_of_total(int64_t count) const {
  return static_cast<double>(count) / static_cast<double>(total);
}

Result<Gsm8kReport> evaluate_gsm8k(const AskQuestions& ask, const std::filesystem::path& set_path,
                                   const Gsm8kOptions& gsm8k, const EvaluationOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Gsm8kSet set, read_set(set_path, gsm8k));
  const auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                          ask(questions_of(set, gsm8k), options));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  Gsm8kReport report{
      .shots = gsm8k.shots, .total = std::ssize(set.questions), .seconds = elapsed.count()};
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    report.prompt_tokens += answer.prompt_tokens;
    report.cached_tokens += answer.cached_tokens;
    report.output_tokens += answer.output_tokens;
    report.request_seconds += answer.elapsed_seconds / static_cast<double>(answers.size());
    if (answer.failed()) {
      ++report.failed;
      continue;
    }
    const auto number = final_number(answer.text);
    if (!number) ++report.invalid;
    if (number == final_number(set.questions[i].answer)) ++report.correct;
  }
  return report;
}

}  // namespace heddle::tools
