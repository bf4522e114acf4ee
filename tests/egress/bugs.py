"""What gateways and sandboxes of others let through, one entry each: our guard against it, and the test that proves it.

The entries are numbered as they were collected. A proof is a test that passes, and fails in the test build when the
named guards of src/base/guards.h are left out; run_bugs.py runs it both ways, document.py makes docs/egress-tests.md.
An entry without a proof says why there is none. Sources are pages below https://github.com/, or words.
"""
import collections

Bug = collections.namedtuple("Bug", "number what sources proofs open")
# `guards`: left out together. `control`: whether lab.Control must still pass without them.
Proof = collections.namedtuple("Proof", "guards kind where test control")


def unit(library, test, *guards):
    return Proof(guards, "unit", library, test, False)


def whole(test, *guards, control=True):
    return Proof(guards, "whole", "", test, control)


def bug(number, what, sources, *proofs, open=None):  # noqa: A002
    return Bug(str(number), what, sources.split(), proofs, open)


READ = "its-source"  # no page says it: it was seen in the program's source

BUGS = [
    # ---- DNS
    bug(1, "Names of queries carry data out where a sandbox may bind and listen locally", "anthropic-experimental/sandbox-runtime/issues/88",
        whole("Dns.test_no_query_leaves_the_host_however_many_there_are", "dns_closed")),
    bug(2, "The resolver that a jail leaves open takes data out in names", "coder/httpjail/issues/53",
        whole("Dns.test_no_query_leaves_the_host_however_many_there_are", "dns_closed")),
    bug(3, "What is denied by default is connections, and not queries", "superradcompany/microsandbox/issues/675",
        whole("Boundary.test_what_no_rule_allows_is_reset_and_sent_nowhere", "dns_closed")),
    bug(4, "A request is denied, and the query for its host has left already", "NVIDIA/OpenShell/issues/1169",
        whole("Dns.test_what_is_denied_was_never_asked_for", "dns_closed")),
    bug(5, "The resolver's address is allowed of itself, also without any Internet", "TencentCloud/CubeSandbox/issues/408 TencentCloud/CubeSandbox/pull/1183",
        whole("Boundary.test_no_resolver_is_reached_because_it_is_one", "default_deny", "server_name_judged", "server_name_required")),
    bug(6, "A rule for a name opens a public resolver; and a denied name that is said not to exist stays so when it is allowed", "dust-tt/dust/pull/25991",
        unit("egress", "DnsReplies.OtherTypesHaveNoRecords", "dns_types"), unit("egress", "DnsReplies.ADeniedNameIsAnsweredLikeAnAllowedOne", "dns_denied")),
    bug(7, "The cluster's own DNS goes on to tunnel", "vibed-project/vibeD/issues/59",
        whole("Dns.test_no_query_leaves_the_host_however_many_there_are", "dns_closed")),
    bug(8, "Records that the guest adds to a query are forwarded with it", "buildkite/cleanroom/pull/494",
        unit("egress", "DnsQuery.HasNoRecords", "dns_sections"), whole("Dns.test_a_query_with_records_of_its_own_is_refused", "dns_sections")),
    bug(9, "Programs that need other records (Kerberos asks for SRV) do not work; where any may be asked for, they carry data out", "openai/codex/issues/22387",
        unit("egress", "DnsReplies.AServiceThatThePolicyDoesNotNameIsNot", "dns_services"),
        whole("Dns.test_services_of_the_policy_are_looked_up_and_no_others", "dns_services")),
    bug(10, "An IPv6 address is answered that nothing leads to, and clients hang", "superradcompany/microsandbox/issues/607",
        whole("Dns.test_both_families_lead_to_the_name_at_once", "synthetic_v6", control=False)),
    # ---- names
    bug(11, "A NUL in a SOCKS name: the check saw its end, the resolver its beginning", "NVIDIA/OpenShell/issues/1498",
        unit("policy", "CanonicalHost.RefusesControlsAndWhatPartsAUrl", "host_bytes"), whole("NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_host", "host_bytes"),
        whole("AskedConnections.test_no_other_name_is_taken_for_an_allowed_one_in_a_request_for_a_connection", "host_bytes")),
    bug(12, "A name is allowed that merely ends in an allowed one, or holds it", "tinyproxy/tinyproxy/issues/627 luongnv89/yt-search-lib/issues/12",
        unit("policy", "HostPattern.OneStarIsEveryNameBelow", "label_boundary"), whole("NamesInTheirPlaces.test_no_other_name_is_taken_for_an_allowed_one_in_a_hello", "label_boundary")),
    bug(13, "A dot at the end makes another name of it, which no rule denies", "adcontextprotocol/adcp/issues/5959 NorthlandPositronics/Cogtrix/pull/2138 NVIDIA/OpenShell/pull/2248",
        unit("policy", "CanonicalHost.FoldsCaseAndOneDotAtTheEnd", "trailing_dot"), whole("NamesInTheirPlaces.test_one_name_in_every_spelling_is_one", "trailing_dot")),
    bug(14, "Letter case makes another name of it", "cloudfoundry/haproxy-boshrelease/issues/238",
        unit("policy", "CanonicalHost.FoldsCaseAndOneDotAtTheEnd", "case_folding"), whole("NamesInTheirPlaces.test_one_name_in_every_spelling_is_one", "case_folding")),
    bug(15, "To deny `*` denies more than anybody meant", "anthropic-experimental/sandbox-runtime/issues/353",
        unit("policy", "HostPattern.IsNotEveryHost", "pattern_everything")),
    bug(16, "Of one spelling of a wildcard some take the name itself to be meant too, and some not", READ,
        unit("policy", "HostPattern.OneStarIsEveryNameBelow", "pattern_apex"), unit("policy", "HostPattern.IsNotEverythingBelowAPublicSuffix", "pattern_suffix")),
    bug(17, "A star at the end of a pattern (`api.*`) takes in hosts of strangers", READ,
        unit("policy", "HostPattern.HasItsStarAsTheWholeFirstLabelAlone", "pattern_place")),
    bug(18, "Other spellings of an address, and user names in front of a host, pass for something else", "thunderbird/thunderbolt/pull/995",
        unit("policy", "CanonicalHost.RefusesEverySpellingOfAnIpv4AddressButOne", "ipv4_spelling"), unit("policy", "CanonicalHost.RefusesControlsAndWhatPartsAUrl", "host_bytes")),
    bug(19, "A second name of a cloud's metadata service, or of the host, is on no list", "MCPJam/inspector/pull/3025 langchain-ai/langchain/pull/36768",
        whole("Boundary.test_the_host_its_networks_and_metadata_are_no_destination", "floor")),
    # ---- addresses
    bug(20, "A private IPv4 address passes in its IPv6 form", "EverMind-AI/Raven/pull/374",
        unit("policy", "CanonicalHost.AddressesKeepTheirClass", "v4_mapped"), unit("policy", "IpAddress.AMappedOneIsItsIpv4One", "v4_mapped")),
    bug(21, "It passes in an address of NAT64", "oryx-labs/oryxos/issues/126 ccfos/nightingale/pull/3364",
        unit("policy", "IpClass.OfIpv4WithinIpv6", "nat64"), unit("policy", "NetworkPolicy.TheFloorKeepsWhatIsNotTheInternet", "nat64")),
    bug(22, "It passes in one of 6to4 or Teredo, or as site-local", "basecamp/fizzy/pull/2988 langflow-ai/langflow/pull/14174",
        unit("policy", "IpClass.OfIpv4WithinIpv6", "ip_translated"), unit("policy", "NetworkPolicy.TheFloorKeepsWhatIsNotTheInternet", "ip_translated")),
    bug(23, "Whoever allows private addresses allows the metadata service among them", "openclaw/openclaw/pull/75523",
        unit("policy", "NetworkPolicy.ARangeLiftsTheFloorForWhatItsRuleAllows", "metadata_alone"), whole("Boundary.test_a_range_does_not_name_metadata", "metadata_alone")),
    bug(24, "A name is resolved to be judged and once more to be dialed, and leads elsewhere then", "coder/coder/pull/23109",
        whole("Dns.test_a_name_is_resolved_once_and_what_was_judged_is_dialed", "dial_judged")),
    bug(25, "The loopback as an address is handled in several ways", "openai/codex/issues/33227",
        unit("policy", "NetworkPolicy.RefusesWithKeyFoundAndAllowed", "loopback_rule"), unit("policy", "NetworkPolicy.TheFloorKeepsWhatIsNotTheInternet", "floor")),
    bug(26, "The host's loopback is reached by the gateway's address", "rootless-containers/slirp4netns/issues/50 containers/podman/issues/28718",
        whole("Boundary.test_the_host_its_networks_and_metadata_are_no_destination", "floor")),
    # ---- policies of names that are held by addresses
    bug(27, "Other names of an allowed address are reached", "cilium/cilium/issues/31803",
        whole("Tls.test_a_server_is_judged_by_its_name_and_not_by_its_address", "server_name_judged", "server_name_required")),
    bug(28, "An alias that an attacker chose opens all ports of its target", "mcdonc/klangk/issues/2279 mcdonc/klangk/issues/2285",
        whole("Boundary.test_a_rule_is_for_its_ports_alone", "rule_ports"), whole("Tls.test_tls_without_a_name_is_no_way_to_a_name", "server_name_required")),
    bug(29, "A connection to any address passes that says an allowed name", "TencentCloud/CubeSandbox/issues/1697",
        whole("Tls.test_where_a_program_wants_an_allowed_name_to_be_decides_nothing", "dial_by_name")),
    # ---- TLS
    bug(30, "What was opened for an allowed name carries TLS for another one", "github/gh-aw-firewall/pull/8878",
        whole("Tls.test_a_hello_names_what_was_asked_for", "server_name_bound"), whole("AskedConnections.test_what_is_inside_is_for_the_host_that_was_asked_for", "tunnel_bound")),
    bug(31, "The hello names an allowed host, and the request inside another one", "superradcompany/microsandbox/issues/709 UKGovernmentBEIS/inspect_k8s_sandbox/pull/208 "
        "Wide-Moat/open-computer-use/issues/198 anthropics/claude-code/issues/20255",
        whole("Requests.test_a_host_behind_an_allowed_server_is_not_reached_by_its_name", "host_bound")),
    bug(32, "A name far behind in a long hello is not found", "microsoft/azure-container-apps/issues/1826",
        unit("egress", "ClientHello.TheNameMayStandBehindALongKeyShare", "hello_length"), whole("Tls.test_a_hello_arrives_whole_however_it_is_cut", "hello_length")),
    bug(33, "An encrypted hello hides the name", "net4people/bbs/issues/417 net4people/bbs/issues/393",
        unit("egress", "ClientHello.SaysWhetherTheNameMayBeHidden", "hello_ech"), whole("Tls.test_a_hello_that_may_hide_a_name_is_known_as_one", "hello_ech"),
        whole("Tls.test_a_hello_that_may_hide_a_name_is_known_as_one", "dns_types")),
    bug(34, "QUIC goes round what redirects TCP", "engcapa/taomni/pull/456 mitmproxy/mitmproxy/issues/4170 droe/sslsplit/issues/300",
        whole("Boundary.test_what_is_neither_tcp_nor_dns_fails_at_once", "refuse_rest")),
    bug(35, "Certificates without key identifiers are refused by newer Pythons", "python/cpython/issues/138193 hahwul/gori/issues/1168 mitmproxy/mitmproxy/pull/8214",
        unit("io", "Authority.CertificatesOfNamesHoldBeforeAStrictVerifier", "leaf_key_ids")),
    bug(36, "Certificates begin in the future of a client whose clock is behind", "superradcompany/microsandbox/issues/969",
        unit("io", "Authority.CertificatesOfNamesHoldBeforeAStrictVerifier", "leaf_not_before")),
    bug(37, "TLS to a bare address is not looked into, though its hello has a name", "abhinavsingh/proxy.py/issues/1493",
        whole("Tls.test_tls_to_a_bare_address_is_opened_too", "inspect_literal")),
    # ---- HTTP
    bug(38, "The target is absolute and names another host than Host does", "coder/httpjail/issues/57",
        whole("Requests.test_an_absolute_target_names_what_host_names", "absolute_form")),
    bug(39, "The second request of a connection is not looked at", READ,
        whole("Requests.test_every_request_of_a_connection_is_judged", "each_request")),
    bug(40, "A path is judged in one spelling and served in another", "NVIDIA/OpenShell/pull/878 NVIDIA/OpenShell/pull/2699 vm0-ai/vm0/issues/15707 opensandbox-group/OpenSandbox/pull/1192 "
        "open-webui/open-webui/pull/25157 nolabs-ai/nono/pull/528 blaxel-ai/sdk-typescript/pull/421",
        unit("policy", "CanonicalTarget.ResolvesDotsAndSlashesInARow", "path_dots"), unit("policy", "CanonicalTarget.RefusesDotsThatServersResolveInTwoWays", "path_parameters"),
        unit("policy", "CanonicalTarget.RefusesHiddenSeparators", "path_separators"), unit("policy", "CanonicalTarget.RefusesHiddenSeparators", "path_nested"),
        unit("policy", "CanonicalTarget.HasOneSpelling", "path_unreserved"), whole("Requests.test_a_path_is_judged_and_sent_in_one_spelling", "path_dots"),
        whole("Requests.test_a_path_is_judged_and_sent_in_one_spelling", "path_separators"), whole("Requests.test_a_path_is_judged_and_sent_in_one_spelling", "path_parameters"),
        whole("Requests.test_a_path_is_judged_and_sent_in_one_spelling", "path_unreserved")),
    bug(41, "Two framings of one request smuggle a second one", "http-party/node-http-proxy/issues/1721",
        unit("http", "Framings/Heads.AreAcceptedOrRefused/ChunkedAndLength", "framing"), whole("Requests.test_a_server_gets_one_request_or_none", "framing")),
    bug(42, "WebSockets break or are opaque, and other tokens of Upgrade tunnel anything", "NVIDIA/OpenShell/issues/652 secretgate/secretgate/issues/9 nginx/nginx/issues/1472 "
        "boxlite-ai/boxlite/pull/769 iterate/iterate/pull/1932",
        whole("Requests.test_only_a_websocket_is_upgraded_to", "upgrade_tokens"), whole("Requests.test_a_websocket_needs_a_rule_that_says_so", "websocket_rule"),
        whole("Requests.test_no_server_changes_the_protocol_unasked", "upgrade_unasked")),
    bug(43, "A rule for some methods alone lets a blind tunnel through", "openai/codex/pull/9859",
        whole("Requests.test_what_a_rule_says_of_requests_has_tls_opened", "methods_inspect")),
    bug(44, "HTTP without TLS is not filtered; CONNECT is passed on", "anthropics/claude-code/issues/40213 anthropics/claude-code/issues/87381",
        whole("Requests.test_a_rule_for_tls_allows_nothing_without_it", "plaintext_rule")),
    bug(45, "Large bodies stall, half-closed connections leak, lengths are wrong behind a change", "superradcompany/microsandbox/issues/791",
        unit("secrets", "Substitute.TheBodysLengthFollows", "secret_length")),
    # ---- secrets
    bug(46, "A server repeats the value in an error, and the sandbox reads it", "boxlite-ai/boxlite/issues/1500",
        whole("Secrets.test_an_answer_has_the_placeholder_where_the_server_says_the_value", "scrub"), unit("gateway", "SecretPassage.AnswersHaveThePlaceholderOrAreBrokenOff", "scrub")),
    bug(47, "Headers that servers repeat get the value put in", "dust-tt/dust/pull/26828",
        unit("secrets", "Substitute.RefusesHeadersThatServersRepeat", "repeated_headers"), whole("Secrets.test_it_goes_to_its_places_alone", "repeated_headers")),
    bug(48, "A mail that is sent by an allowed host carries the value out", "dmno-dev/varlock/pull/934",
        unit("secrets", "Substitute.OtherParametersFieldsAndPointersAreNoPlace", "secret_places"), unit("secrets", "Substitute.AsOftenAsTheRuleSays", "secret_occurrences"),
        whole("Secrets.test_it_goes_to_its_places_alone", "secret_places"), whole("Secrets.test_no_more_often_than_its_rule_says", "secret_occurrences")),
    bug(49, "Where a value may go, in which places, and who may see the placeholder is one switch", "superradcompany/microsandbox/issues/1354",
        unit("secrets", "Substitute.RefusesEveryRegularEncodingOutsideOfItsPlace", "secret_passthrough"),
        whole("Secrets.test_no_other_host_gets_it_and_no_redirect_takes_it_along", "secret_passthrough")),
    bug(50, "What the client says of itself stays beside the header that is set", "getsentry/junior/pull/338",
        unit("secrets", "Inject.SetsTheHeaderInPlaceOfWhatTheClientSays", "inject_makes_room"), whole("Secrets.test_what_the_client_says_of_itself_gives_way_to_what_is_set", "inject_makes_room")),
    bug(51, "A redirect takes the value along to another host", "NousResearch/hermes-agent/pull/10031 oryx-labs/oryxos/pull/182 rmusser01/tldw_chatbook/pull/1942",
        unit("secrets", "Substitute.RefusesEveryOtherHost", "secret_hosts"), whole("Secrets.test_no_other_host_gets_it_and_no_redirect_takes_it_along", "secret_hosts")),
    bug(52, "A header that is set for a host goes along to where it redirects, which refuses it", "docker/sbx-releases/issues/568",
        unit("secrets", "Inject.SetsNothingForOtherHostsAndWithoutTls", "secret_hosts"), whole("Secrets.test_what_the_client_says_of_itself_gives_way_to_what_is_set", "secret_hosts")),
    bug("52b", "What should set a header is lost, and requests go out without", "docker/sbx-releases/issues/196 docker/sbx-releases/issues/130",
        unit("secrets", "Inject.RefusesRatherThanToSendTheRequestWithout", "inject_needs_value"), unit("policy", "NetworkPolicy.TlsToTheHostsOfASecretIsOpenedWhateverAllowsIt", "secret_hosts_opened"),
        whole("Secrets.test_tls_to_its_hosts_is_opened_whatever_allows_them", "secret_hosts_opened")),
    bug("52c", "Requests in the form for a proxy, to a proxy that is allowed, are led to the host that they name", "docker/sbx-releases/issues/224",
        whole("Requests.test_an_absolute_target_names_what_host_names", "absolute_form", "host_bound")),
    bug(53, "The control plane is reached from inside", "opensandbox-group/OpenSandbox/pull/1009 advisories/GHSA-9x85-c42x-79cx",
        whole("Boundary.test_an_address_of_the_host_is_none_though_it_is_the_internets", "own_address")),
    bug(54, "A line end in a value makes headers of it", "NVIDIA/OpenShell/pull/708 dust-tt/dust/pull/25867",
        unit("secrets", "Placeholder.NoneForAValueThatIsRefused", "secret_bytes"), unit("secrets", "SecretRules.RefuseWhatIsWrongWithoutShowingAValue", "secret_bytes")),
    bug(55, "The true credential is in the agent's environment", "Infisical/cli/pull/386",
        whole("Secrets.test_the_sandbox_has_a_placeholder_and_the_server_gets_the_value", "placeholder_inside")),
    bug(56, "What a rewriter cannot read it forwards as it came", "its-source",
        unit("secrets", "Substitute.RefusesAMalformedBodyThatHasAPlaceholder", "secret_malformed", "secret_search")),
    bug(57, "Answers are searched for the plain value alone", "paradigmxyz/iron-proxy/pull/243",
        unit("secrets", "Scrub.NoFormOfTheValueComesThroughAtAnySplit", "secret_forms"), whole("Secrets.test_an_answer_has_the_placeholder_where_the_server_says_the_value", "secret_forms"),
        whole("Secrets.test_no_encoding_takes_the_placeholder_past_the_search", "secret_forms")),
    bug(58, "A signature over a placeholder never fits", "NVIDIA/OpenShell/pull/1638 omnigent-ai/omnigent/issues/7294 vm0-ai/vm0/issues/16809",
        unit("secrets", "Resign.TheServerGetsASignatureWithTheKeyOverWhatIsSent", "sigv4_anew"), unit("secrets", "Resign.WhatIsSignedForOtherServicesOrRegionsIsNotSent", "sigv4_scope"),
        unit("secrets", "Resign.ABodyIsTheOneThatWasSigned", "sigv4_body"), unit("secrets", "Resign.WhatWasNotSignedWithThePlaceholdersIsNotSent", "sigv4_verified"),
        unit("secrets", "Resign.APathThatIsSentOtherwiseNamesAnotherObject", "sigv4_path")),
    bug(59, "A credential expires while the agent works", "superhq-ai/shuru/pull/41",
        unit("secrets", "SecretEnds.AValueThatEndedGoesNowhereAndIsStillTakenOutOfAnswers", "secret_ends")),
    bug(60, "A secret is put into HTTP without TLS", "multikernel/sandlock/pull/127 Infisical/cli/pull/397",
        unit("secrets", "Substitute.RefusesWhatIsNotOnItsWayOverVerifiedTls", "secret_plaintext"), whole("Secrets.test_it_goes_nowhere_without_tls", "secret_plaintext")),
    # ---- clients
    bug(61, "Containers in a sandbox do not trust its authority", "docker/sbx-releases/issues/515 docker/sbx-releases/issues/322",
        open="no program inside can make the namespaces that a container needs"),
    bug(62, "Java has a store of its own, which lacks the authority", "opensandbox-group/OpenSandbox/issues/1201 NVIDIA/OpenShell/issues/2819",
        whole("Clients.test_java", "trust_java")),
    bug(63, "Node's fetch reads no variable of proxies", "nodejs/undici/issues/4165",
        whole("Boundary.test_programs_need_be_told_of_no_proxy", "redirect_tcp", control=False)),
    bug(64, "Deny rules compare one spelling of a host", "stacklok/toolhive/pull/5907 stacklok/toolhive/issues/1008",
        whole("NamesInTheirPlaces.test_one_name_in_every_spelling_is_one", "case_folding", "trailing_dot")),
    bug(65, "A list of allowed hosts is stored and not enforced", "xiaods/k8e/issues/510",
        whole("Boundary.test_what_no_rule_allows_is_reset_and_sent_nowhere", "default_deny"), unit("policy", "NetworkPolicy.WithoutARuleNothingIsAllowed", "default_deny")),
    bug(66, "gVisor's netfilter lacks what the rules need", "google/gvisor/issues/170 google/gvisor/issues/9917 google/gvisor/issues/13796 opensandbox-group/OpenSandbox/issues/934",
        open="there is no wall of gVisor's; where it were, the rules stand in the gateway's namespace and not inside"),
]

# Guards that no entry of the list needs by itself.
BESIDE = [
    bug("a", "A server is not verified before a request goes there", "", whole("Tls.test_a_server_that_cannot_be_believed_is_sent_nothing", "upstream_verified")),
    bug("b", "A program that reads the image's bundle alone does not find the authority", "", whole("Clients.test_wget", "trust_bundle")),
    bug("c", "A program that reads a variable alone does not find it", "", whole("Clients.test_node", "trust_variables")),
    bug("d", "A proxy that a policy names is a way to this host's own network", "", unit("policy", "UpstreamProxy.IsJudgedByTheFloor", "proxy_floor")),
    bug("e", "Where the proxy fails, what should have gone through it goes out directly", "", whole("Proxies.test_a_proxy_that_fails_is_not_gone_around", "proxy_alone")),
    bug("f", "A proxy resolves a name to an address that the policy denies", "", unit("policy", "UpstreamProxy.ResolvesWhatARuleNamesWhereNoAddressIsDenied", "proxy_addresses")),
]
