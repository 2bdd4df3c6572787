// SPDX-License-Identifier: Apache-2.0
#include "chat/template.h"

#include <utility>

#include "chat/ast.h"
#include "chat/parser.h"
#include "chat/statement_renderer.h"

namespace heddle::chat {

struct Template::Parsed {
  std::string source;
  std::string name;
  Block block;
};

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

Result<Template> Template::parse(std::string source, std::string name,
                                 const ParseOptions& options) {
  const WhitespaceRules rules{.trim_blocks = options.trim_blocks,
                              .lstrip_blocks = options.lstrip_blocks};
  HEDDLE_ASSIGN_OR_RETURN(Block block, parse_template(source, name, rules, options.limits));
  return Template(std::make_shared<const Parsed>(
      Parsed{.source = std::move(source), .name = std::move(name), .block = std::move(block)}));
}

Result<std::string> Template::render(const Value& context, const RenderLimits& limits,
                                     const std::function<std::tm()>& local_now,
                                     RenderReport* report) const {
  if (!context.is(Kind::kDict)) return invalid_argument("a template's variables must be a dict");
  Budget budget(limits);
  StatementRenderer renderer(parsed_->name, context, local_now, budget);
  Result<std::string> text = renderer.run(parsed_->block);
  if (report != nullptr) {
    *report = {.raised_exception = renderer.raised_exception(),
               .exceeded_limits = budget.exceeded(),
               .num_steps = budget.steps()};
  }
  return text;
}

const std::string& Template::source() const { return parsed_->source; }

}  // namespace heddle::chat
