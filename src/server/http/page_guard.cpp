// SPDX-License-Identifier: Apache-2.0
#include "server/http/page_guard.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <unistd.h>

#include "core/printable.h"
#include "server/http/web_origin.h"

namespace heddle::server {
namespace {

constexpr std::string_view kBelow = "*.";

// Host names of this machine: the system's name, and its first label if it has several ("box" of
// "box.lan").
std::vector<std::string> names_of_this_machine() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  const auto parsed = parse_host(name.data());
  if (!parsed) return {};
  return {parsed->host, parsed->host.substr(0, parsed->host.find('.'))};
}

bool matches(std::string_view host, std::string_view allowed) {
  if (allowed == "*") return true;
  const bool is_below = allowed.starts_with(kBelow);
  if (is_below) allowed.remove_prefix(kBelow.size());
  const auto name = parse_host(allowed);
  if (!name) return false;
  return is_below ? host.ends_with("." + name->host) : host == name->host;
}

std::string in_quotes(std::string_view text) {
  return text.empty() ? "missing" : fmt::format("\"{}\"", printable(text, 200));
}

}  // namespace

Status check_allowed_host(std::string_view name) {
  if (name == "*") return ok_status();
  const std::string_view host =
      name.starts_with(kBelow) ? name.substr(kBelow.size()) : std::string_view(name);
  const auto parsed = parse_host(host);
  if (parsed && parsed->port.empty() && host.find('*') == std::string_view::npos) {
    return ok_status();
  }
  return invalid_argument(
      fmt::format("{} is no name of a host; write it without a scheme and a "
                  "port, as llm.example, *.example for all names below one, or "
                  "* for every host",
                  in_quotes(name)));
}

Status check_allowed_origin(std::string_view origin) {
  const bool is_one = parse_origin(origin) && origin.find('*') == std::string_view::npos;
  if (is_one || origin == "*" || origin == "null") return ok_status();
  return invalid_argument(
      fmt::format("{} is no origin of web pages; write it as a browser does, with scheme and host, "
                  "and with the port where it has one, as https://page.example:8443, or * for all",
                  in_quotes(origin)));
}

PageGuard::PageGuard(const GateOptions& options)
    : options_(options),
      is_unix_socket_(options.http.host.starts_with(kUnixPrefix)),
      own_names_(names_of_this_machine()) {
  own_names_.emplace_back("localhost");
  if (const auto own = parse_host(options.http.host)) own_names_.push_back(own->host);
}

std::optional<ApiError> PageGuard::refusal_of(const HttpRequest& request) const {
  if (auto error = check_host(request)) return error;
  return check_sender(request);
}

std::optional<ApiError> PageGuard::check_host(const HttpRequest& request) const {
  if (is_unix_socket_) return std::nullopt;
  const std::string_view sent = request.header("host");
  const auto host = parse_host(sent);
  const auto is_host = [&host](const std::string& name) { return matches(host->host, name); };
  if (host &&
      (host->is_ip_address || std::ranges::find(own_names_, host->host) != own_names_.end() ||
       std::ranges::any_of(options_.allowed_hosts, is_host))) {
    return std::nullopt;
  }
  return ApiError{
      .status = 403,
      .code = "unknown_host",
      .message = fmt::format("{} refuses {}, because a web page could have chosen it. Use an IP "
                             "address, localhost or the machine's name, add the name to "
                             "--allowed-hosts, or give the server an API key.",
                             printable(request.path, 200),
                             sent.empty() ? std::string("a request without a Host")
                                          : fmt::format("the Host \"{}\"", printable(sent, 200)))};
}

// Checks Origin and Sec-Fetch-Site. If there are several origins, which no browser sends, all must
// be allowed.
std::optional<ApiError> PageGuard::check_sender(const HttpRequest& request) const {
  const std::string site = lower_case(request.header("sec-fetch-site"));
  const auto host = parse_host(request.header("host"));
  const bool speaks_tls = !options_.http.certificate_file.empty();
  bool is_foreign = !site.empty() && site != "same-origin" && site != "none";
  std::string_view sender;
  for (const auto& [name, value] : request.headers) {
    if (name != "origin") continue;
    sender = value;
    const auto origin = parse_origin(value);
    const bool is_own = origin && host && is_own_origin(*origin, *host, speaks_tls);
    if (is_named_origin(value)) {
      is_foreign = false;
    } else if (is_foreign || !is_own) {
      is_foreign = true;
      break;
    }
  }
  if (!is_foreign) return std::nullopt;
  return ApiError{
      .status = 403,
      .code = "cross_origin",
      .message = fmt::format(
          "{} refuses web pages of other origins{}. Name the page's origin in "
          "--cors-allow-origins, or give the server an API key.",
          printable(request.path, 200),
          sender.empty() ? std::string() : fmt::format(" ({})", printable(sender, 200)))};
}

// Whether the operator listed this origin. "null" never counts, because any page can send it.
bool PageGuard::is_named_origin(std::string_view origin) const {
  if (!parse_origin(origin)) return false;
  const std::string canonical = canonical_origin(origin);
  return std::ranges::any_of(options_.cors.origins, [&canonical](const std::string& named) {
    return canonical_origin(named) == canonical;
  });
}

}  // namespace heddle::server
