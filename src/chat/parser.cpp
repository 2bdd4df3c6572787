// SPDX-License-Identifier: Apache-2.0
#include "chat/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "chat/expression_parser.h"
#include "chat/lexer.h"

namespace heddle::chat {

namespace {

constexpr std::array<std::string_view, 9> kUnsupportedTags = {
    "include", "import", "from", "extends", "block", "autoescape", "do", "trans", "debug"};

class Parser {
 public:
  Parser(const std::vector<Token>& tokens, std::string_view name, int max_depth)
      : cursor_(tokens, name), expressions_(cursor_, max_depth), max_depth_(max_depth) {}

  Result<Block> parse_all() {
    HEDDLE_ASSIGN_OR_RETURN(Block block, parse_statements({}));
    if (cursor_.peek().kind != TokenKind::kEnd) return unexpected_tag(cursor_.peek(1));
    return block;
  }

 private:
  // Parses statements up to one of the tags `ends` and does not consume its "{%"; without `ends`,
  // parses all statements.
  Result<Block> parse_statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > max_depth_) {
      return cursor_.fail(
          cursor_.peek().at,
          fmt::format("blocks are nested more than {} deep (max_nesting_depth)", max_depth_));
    }
    Block block;
    while (cursor_.peek().kind != TokenKind::kEnd) {
      const Token& token = cursor_.peek();
      if (token.kind == TokenKind::kText) {
        cursor_.next();
        block.push_back(Statement{.at = token.at, .node = TemplateText{token.text}});
      } else if (token.kind == TokenKind::kOutputBegin) {
        cursor_.next();
        HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.parse_tuple(true));
        HEDDLE_RETURN_IF_ERROR(cursor_.expect_kind(TokenKind::kOutputEnd, "'}}'"));
        block.push_back(Statement{.at = token.at, .node = Output{std::move(value)}});
      } else {
        const Token& tag = cursor_.peek(1);
        const auto is_end = [&tag](std::string_view end) { return tag.is_name(end); };
        if (std::any_of(ends.begin(), ends.end(), is_end)) break;
        cursor_.next();
        HEDDLE_ASSIGN_OR_RETURN(Statement statement, parse_tag());
        block.push_back(std::move(statement));
      }
    }
    --depth_;
    return block;
  }

  // Parses the statements of a block and its end tag `end`. The opening tag `opening` is at
  // `opened`.
  Result<Block> parse_body(std::string_view opening, std::string_view end, Position opened) {
    HEDDLE_ASSIGN_OR_RETURN(Block body, parse_statements({end}));
    HEDDLE_RETURN_IF_ERROR(require_open(opening, end, opened));
    cursor_.next();
    cursor_.next();
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    return body;
  }

  Status require_open(std::string_view opening, std::string_view end, Position opened) const {
    if (cursor_.peek().kind != TokenKind::kEnd) return {};
    return cursor_.fail(opened,
                        fmt::format("the block '{}' is not closed with '{}'", opening, end));
  }

  Status end_of_tag() { return cursor_.expect_kind(TokenKind::kBlockEnd, "'%}'"); }

  Status unexpected_tag(const Token& tag) const {
    if (tag.kind != TokenKind::kName) {
      return cursor_.fail(tag.at,
                          fmt::format("expected the name of a tag, found {}", tag.description()));
    }
    const std::string& name = tag.text;
    if (name.starts_with("end") || name == "else" || name == "elif") {
      return cursor_.fail(
          tag.at, fmt::format("unexpected '{}': there is no open block it belongs to", name));
    }
    const bool known =
        std::find(kUnsupportedTags.begin(), kUnsupportedTags.end(), name) != kUnsupportedTags.end();
    return cursor_.fail(tag.at,
                        known ? fmt::format("the tag '{}' is not supported in chat templates", name)
                              : fmt::format("unknown tag '{}'", name));
  }

  Result<Statement> parse_tag() {
    const Token& tag = cursor_.next();
    const Position at = tag.at;
    if (tag.is_name("if")) return parse_if(at);
    if (tag.is_name("for")) return parse_for(at);
    if (tag.is_name("set")) return parse_set(at);
    if (tag.is_name("macro")) return parse_macro(at);
    if (tag.is_name("call")) return parse_call_block(at);
    if (tag.is_name("filter")) return parse_filter_block(at);
    if (tag.is_name("with")) return parse_with(at);
    if (tag.is_name("generation")) {
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      const LoopDepth outside_loops(loop_depth_);
      HEDDLE_ASSIGN_OR_RETURN(Block body, parse_body("generation", "endgeneration", at));
      return Statement{.at = at, .node = Passage{std::move(body)}};
    }
    if (tag.is_name("print")) {
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.parse_tuple(true));
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      return Statement{.at = at, .node = Output{std::move(value)}};
    }
    if (tag.is_name("break") || tag.is_name("continue")) {
      if (loop_depth_ == 0)
        return cursor_.fail(at, fmt::format("'{}' stands outside of a loop", tag.text));
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      if (tag.is_name("break")) return Statement{.at = at, .node = Break{}};
      return Statement{.at = at, .node = Continue{}};
    }
    return unexpected_tag(tag);
  }

  Result<Statement> parse_if(Position at) {
    If statement;
    while (true) {
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr condition, expressions_.parse_tuple(true));
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      HEDDLE_ASSIGN_OR_RETURN(Block body, parse_statements({"elif", "else", "endif"}));
      statement.branches.emplace_back(std::move(condition), std::move(body));
      HEDDLE_RETURN_IF_ERROR(require_open("if", "endif", at));
      cursor_.next();
      const Token& tag = cursor_.next();
      if (tag.is_name("elif")) continue;
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      if (tag.is_name("else")) {
        HEDDLE_ASSIGN_OR_RETURN(statement.otherwise, parse_body("if", "endif", at));
      }
      return Statement{.at = at, .node = std::move(statement)};
    }
  }

  Result<Statement> parse_for(Position at) {
    For statement;
    HEDDLE_ASSIGN_OR_RETURN(statement.target, parse_targets(false));
    HEDDLE_RETURN_IF_ERROR(cursor_.expect_name("in"));
    HEDDLE_ASSIGN_OR_RETURN(statement.iterable, expressions_.parse_tuple(false));
    if (cursor_.accept_name("if")) {
      HEDDLE_ASSIGN_OR_RETURN(statement.condition, expressions_.parse_expression());
    }
    if (cursor_.peek().is_name("recursive")) {
      return cursor_.fail(cursor_.peek().at, "recursive loops are not supported; use a macro");
    }
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    ++loop_depth_;
    HEDDLE_ASSIGN_OR_RETURN(statement.body, parse_statements({"else", "endfor"}));
    --loop_depth_;
    HEDDLE_RETURN_IF_ERROR(require_open("for", "endfor", at));
    cursor_.next();
    const bool has_else = cursor_.next().is_name("else");
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    if (has_else) {
      HEDDLE_ASSIGN_OR_RETURN(statement.otherwise, parse_body("for", "endfor", at));
    }
    return Statement{.at = at, .node = std::move(statement)};
  }

  Result<Statement> parse_set(Position at) {
    HEDDLE_ASSIGN_OR_RETURN(Target target, parse_targets(true));
    if (cursor_.accept_operator("=")) {
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.parse_tuple(true));
      HEDDLE_RETURN_IF_ERROR(end_of_tag());
      return Statement{.at = at,
                       .node = Set{.target = std::move(target), .value = std::move(value)}};
    }
    SetBlock statement{.target = std::move(target), .filters = {}, .body = {}};
    HEDDLE_ASSIGN_OR_RETURN(statement.filters, expressions_.parse_block_filters(true));
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    const LoopDepth outside_loops(loop_depth_);
    HEDDLE_ASSIGN_OR_RETURN(statement.body, parse_body("set", "endset", at));
    return Statement{.at = at, .node = std::move(statement)};
  }

  // Parses name, name.attribute, (a, b) or a, b.
  Result<Target> parse_targets(bool with_attributes) {
    const Position at = cursor_.peek().at;
    Target tuple{.kind = Target::Kind::kTuple, .at = at};
    bool is_tuple = false;
    while (cursor_.peek().kind == TokenKind::kName || cursor_.peek().is_operator("(")) {
      if (is_tuple && cursor_.peek().is_name("in")) break;  // "for a, in x" has a trailing comma
      HEDDLE_ASSIGN_OR_RETURN(Target part, parse_target(with_attributes));
      tuple.parts.push_back(std::move(part));
      if (!cursor_.accept_operator(",")) break;
      is_tuple = true;
    }
    if (tuple.parts.empty()) {
      return cursor_.fail(
          at, fmt::format("expected a name to assign to, found {}", cursor_.peek().description()));
    }
    if (!is_tuple) return std::move(tuple.parts.front());
    return tuple;
  }

  Result<Target> parse_target(bool with_attributes) {
    const Position at = cursor_.peek().at;
    if (cursor_.accept_operator("(")) {
      if (++depth_ > max_depth_) return cursor_.fail(at, "the assignment is nested too deep");
      HEDDLE_ASSIGN_OR_RETURN(Target inside, parse_targets(with_attributes));
      HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(")"));
      --depth_;
      return inside;
    }
    HEDDLE_ASSIGN_OR_RETURN(std::string name, cursor_.expect_identifier("a name to assign to"));
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) return cursor_.fail(at, fmt::format("cannot assign to '{}'", name));
    }
    Target target{.kind = Target::Kind::kName, .at = at, .name = std::move(name)};
    if (with_attributes && cursor_.accept_operator(".")) {
      target.kind = Target::Kind::kNamespaceAttribute;
      HEDDLE_ASSIGN_OR_RETURN(target.attribute,
                              cursor_.expect_identifier("the name of an attribute"));
    }
    return target;
  }

  Result<std::vector<Parameter>> parse_parameters() {
    HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator("("));
    std::vector<Parameter> parameters;
    while (!cursor_.accept_operator(")")) {
      if (!parameters.empty()) {
        HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(","));
        if (cursor_.accept_operator(")")) break;
      }
      const Position at = cursor_.peek().at;
      HEDDLE_ASSIGN_OR_RETURN(std::string name,
                              cursor_.expect_identifier("the name of a parameter"));
      Parameter parameter{.name = std::move(name), .default_value = nullptr};
      for (const Parameter& earlier : parameters) {
        if (earlier.name == parameter.name) {
          return cursor_.fail(at, fmt::format("the parameter '{}' is repeated", parameter.name));
        }
      }
      if (parameters.size() >= kMaxParameters) {
        return cursor_.fail(at, fmt::format("more than {} parameters", kMaxParameters));
      }
      if (cursor_.accept_operator("=")) {
        HEDDLE_ASSIGN_OR_RETURN(parameter.default_value, expressions_.parse_expression());
      } else if (!parameters.empty() && parameters.back().default_value != nullptr) {
        return cursor_.fail(at, "a parameter without a default stands behind one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  // Parses the body of a macro or call block; break and continue cannot leave it.
  Status parse_macro_body(std::string_view opening, std::string_view end, Position at,
                          MacroDefinition& macro) {
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    const LoopDepth outside_loops(loop_depth_);
    const ExpressionParser::SpecialNames outer = expressions_.special_names;
    expressions_.special_names = {};
    HEDDLE_ASSIGN_OR_RETURN(macro.body, parse_body(opening, end, at));
    macro.uses_varargs = expressions_.special_names.varargs;
    macro.uses_kwargs = expressions_.special_names.kwargs;
    macro.uses_caller = expressions_.special_names.caller;
    expressions_.special_names = outer;
    return {};
  }

  Result<Statement> parse_macro(Position at) {
    MacroDefinition macro;
    HEDDLE_ASSIGN_OR_RETURN(macro.name, cursor_.expect_identifier("the name of a macro"));
    HEDDLE_ASSIGN_OR_RETURN(macro.parameters, parse_parameters());
    HEDDLE_RETURN_IF_ERROR(parse_macro_body("macro", "endmacro", at, macro));
    return Statement{.at = at, .node = std::move(macro)};
  }

  Result<Statement> parse_call_block(Position at) {
    CallBlock statement;
    statement.caller.name = "caller";
    if (cursor_.peek().is_operator("(")) {
      HEDDLE_ASSIGN_OR_RETURN(statement.caller.parameters, parse_parameters());
    }
    const Position call_at = cursor_.peek().at;
    HEDDLE_ASSIGN_OR_RETURN(statement.call, expressions_.parse_expression());
    if (!std::holds_alternative<Call>(statement.call->node)) {
      return cursor_.fail(call_at, "expected a call behind 'call'");
    }
    HEDDLE_RETURN_IF_ERROR(parse_macro_body("call", "endcall", at, statement.caller));
    return Statement{.at = at, .node = std::move(statement)};
  }

  Result<Statement> parse_filter_block(Position at) {
    FilterBlock statement;
    HEDDLE_ASSIGN_OR_RETURN(statement.filters, expressions_.parse_block_filters(false));
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    const LoopDepth outside_loops(loop_depth_);
    HEDDLE_ASSIGN_OR_RETURN(statement.body, parse_body("filter", "endfilter", at));
    return Statement{.at = at, .node = std::move(statement)};
  }

  Result<Statement> parse_with(Position at) {
    With statement;
    while (cursor_.peek().kind != TokenKind::kBlockEnd) {
      if (!statement.bindings.empty()) HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(","));
      HEDDLE_ASSIGN_OR_RETURN(Target target, parse_target(false));
      HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator("="));
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.parse_expression());
      statement.bindings.emplace_back(std::move(target), std::move(value));
    }
    HEDDLE_RETURN_IF_ERROR(end_of_tag());
    HEDDLE_ASSIGN_OR_RETURN(statement.body, parse_body("with", "endwith", at));
    return Statement{.at = at, .node = std::move(statement)};
  }

  // Sets the loop depth to zero as long as this object exists.
  class LoopDepth {
   public:
    explicit LoopDepth(int& depth) : depth_(depth), before_(depth) { depth_ = 0; }

    ~LoopDepth() { depth_ = before_; }

    LoopDepth(const LoopDepth&) = delete;
    LoopDepth& operator=(const LoopDepth&) = delete;

   private:
    int& depth_;
    int before_;
  };

  static constexpr size_t kMaxParameters = 256;  // names are compared pairwise, so their number is
                                                 // bounded

  TokenCursor cursor_;
  ExpressionParser expressions_;
  const int max_depth_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Result<Block> parse_template(std::string_view source, std::string_view name,
                             const WhitespaceRules& rules, const RenderLimits& limits) {
  if (source.size() > static_cast<size_t>(limits.max_source_bytes)) {
    return invalid_argument(
        fmt::format("{}: the template has {} bytes, at most {} are allowed (max_source_bytes)",
                    name, source.size(), limits.max_source_bytes));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Token> tokens, tokenize(source, name, rules));
  return Parser(tokens, name, limits.max_nesting_depth).parse_all();
}

}  // namespace heddle::chat
