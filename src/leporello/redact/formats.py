"""The published shapes of secrets that carry their own mark: a prefix and what may follow it, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of secret: it begins with a prefix and goes on as `body` says (ASCII classes, bounded repetitions)."""

    kind: str
    prefixes: tuple[str, ...]
    body: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return the whole shape, compiled when the first candidate is met."""
        heads = "|".join(map(re.escape, self.prefixes))
        return re.compile(f"(?:{heads})(?:{self.body})", re.ASCII)

    def holds(self, sign: str) -> bool:
        """Tell whether the secret may hold this sign."""
        return any(sign in part for part in (*self.prefixes, self.body))


def _format(kind: str, prefixes: str, body: str) -> Format:
    return Format(kind=kind, prefixes=tuple(prefixes.split()), body=body)


_END = r"(?![A-Za-z0-9])"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_B64 = r"(?:[A-Za-z0-9+/]|%2[BF])"
_PAD = r"(?:=|%3D){0,2}"
# A long body must not be tried again at every repetition of its prefix, so such a prefix opens a run.
_WORD_START = (
    r"(?:(?<![\w-]eyJ)|(?<=\\[nrt]eyJ)|(?<=%[0-9A-Fa-f]{2}eyJ)|(?<=\\u[0-9A-Fa-f]{4}eyJ)"
    r"|(?<=[\[;]\dmeyJ)|(?<=[\[;]\d\dmeyJ))"
)
_MODELS = (
    _format("anthropic-key", "sk-ant-", r"[\w-]{20,200}"),
    _format("openrouter-key", "sk-or-", r"(?:v\d-)?[0-9a-f]{32,64}"),
    _format("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", r"[\w-]{20,250}"),
    _format("openai-key", "sk-", r"[A-Za-z0-9]{16,24}T3BlbkFJ[A-Za-z0-9]{16,24}"),
    _format("openai-key", "sess-", r"[A-Za-z0-9]{40}" + _END),
    _format("langfuse-key", "sk-lf-", _UUID),
    _format("api-key", "sk-", r"[A-Za-z0-9]{32,200}"),
    _format("api-key", "sk_", r"[0-9a-f]{48}" + _END),
    _format("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{34,40}" + _END),
    _format("replicate-token", "r8_", r"[A-Za-z0-9]{37,40}" + _END),
    _format("groq-key", "gsk_", r"[A-Za-z0-9]{48,60}"),
    _format("xai-key", "xai-", r"[A-Za-z0-9]{60,100}"),
    _format("perplexity-key", "pplx-", r"[A-Za-z0-9]{40,64}"),
    _format("cerebras-key", "csk-", r"[A-Za-z0-9]{32,64}"),
    _format("voyage-key", "pa-", r"[\w-]{43}(?![\w-])"),
    _format("together-key", "tgp_v1_", r"[\w-]{40,60}"),
    _format("tavily-key", "tvly-", r"(?:dev-|prod-)?[A-Za-z0-9-]{28,64}"),
    _format("firecrawl-key", "fc-", r"[0-9a-f]{32}" + _END),
    _format("nvidia-key", "nvapi-", r"[\w-]{60,100}"),
    _format("jina-key", "jina_", r"[A-Za-z0-9_-]{50,80}"),
    _format("pinecone-key", "pcsk_", r"[\w-]{40,100}"),
    _format("e2b-key", "e2b_", r"[0-9a-f]{40}" + _END),
    _format("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}"),
)
_CODE_HOSTS = (
    _format("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\w{36,255}"),
    _format("github-token", "github_pat_", r"\w{36,255}"),
    _format(
        "gitlab-token",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glimt- glagent- gloas- glffct- GR1348941",
        r"[\w-]{20,300}(?:\.[0-9a-z]{2}\.?[0-9a-z]{7,9})?",
    ),
    _format("atlassian-token", "ATATT3 ATCTT3", r"[\w-]{100,300}+(?:(?:=|%3D)[A-Z0-9]{1,16})?"),
    _format("atlassian-token", "ATBB", r"[A-Za-z0-9]{24,40}" + _END),
    _format("npm-token", "npm_", r"[A-Za-z0-9]{36}" + _END),
    _format("pypi-token", "pypi-", r"AgE[\w-]{50,1000}"),
    _format("rubygems-key", "rubygems_", r"[0-9a-f]{48}"),
    _format("crates-token", "cio", r"[A-Za-z0-9]{32}" + _END),
    _format("nuget-key", "oy2", r"[a-z0-9]{43}" + _END),
    _format("docker-token", "dckr_pat_ dckr_oat_", r"[\w-]{27,40}"),
    _format("sourcegraph-token", "sgp_", r"(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    _format("buildkite-token", "bkua_", r"[0-9a-f]{40}"),
    _format("circleci-token", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9]{22}_[0-9a-f]{40}"),
    _format("sonar-token", "squ_ sqp_ sqa_", r"[0-9a-f]{40}" + _END),
    _format("artifactory-key", "AKCp", r"[A-Za-z0-9]{60,80}" + _END),
    _format("artifactory-token", "cmVmdGtuO", _B64 + "{40,120}" + _PAD),
    _format("snyk-token", "snyk_uat. snyk_sat.", r"[0-9a-f]{8}\.[\w-]{16,1024}\.[\w-]{16,256}"),
)
_CLOUDS = (
    _format("aws-access-key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}" + _END),
    _format("aws-bedrock-key", "ABSK", _B64 + "{100,200}" + _PAD),
    _format("google-api-key", "AIza", r"[\w-]{35}"),
    _format("google-oauth-token", "ya29.", r"[\w.-]{20,2048}"),
    _format("google-refresh-token", "1//0 1%2F%2F0", r"[\w-]{40,120}"),
    _format("google-client-secret", "GOCSPX-", r"[\w-]{28}"),
    _format("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    _format("heroku-key", "HRKU-", r"[\w-]{36,70}"),
    _format("databricks-token", "dapi dkea dose dsapi", r"[0-9a-f]{32}(?:-\d)?" + _END),
    _format("doppler-token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _format("vault-token", "hvs. hvb. hvr.", r"[\w-]{24,300}"),
    _format("alibaba-key", "LTAI", r"[A-Za-z0-9]{16,26}" + _END),
    _format("tencent-key", "AKID", r"[A-Za-z0-9]{32,40}" + _END),
    _format("supabase-key", "sbp_ sb_secret_", r"[\w-]{31,64}"),
    _format("planetscale-key", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{32,64}"),
    _format("pulumi-token", "pul-", r"[0-9a-f]{40}"),
    _format("prefect-key", "pnu_ pnb_", r"[A-Za-z0-9]{36}" + _END),
    _format("netlify-token", "nfp_ nfo_ nfc_ nfu_ nfb_", r"[A-Za-z0-9]{36,40}" + _END),
    _format("fly-token", "fm1_ fm2_ fm1r_ fm1a_", r"[A-Za-z0-9+/=_-]{60,2000}"),
    _format("tailscale-key", "tskey-", r"[a-z]{2,12}-[A-Za-z0-9-]{16,80}"),
    _format("dynatrace-token", "dt0", r"[cs]\d\d\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    _format("cloudflare-origin-key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{100,160}"),
    _format("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"[A-Za-z0-9]{24,80}" + _END),
    _format("vercel-token", "vercel_blob_rw_", r"[A-Za-z0-9]{8,32}_[A-Za-z0-9]{24,40}"),
    _format("okta-token", "00", r"(?=[\w-]{0,39}[A-Z])(?=[\w-]{0,39}[g-z])[\w-]{40}(?![\w-])"),
    _format("onepassword-token", "ops_", r"eyJ[\w-]{200,2000}={0,3}"),
)
_SERVICES = (
    _format("slack-token", "xoxa- xoxb- xoxp- xoxo- xoxr- xoxs- xoxe- xoxc-", r"[A-Za-z0-9-]{10,300}"),
    _format("slack-token", "xoxd-", r"[A-Za-z0-9%+/=-]{40,600}"),
    _format("slack-token", "xapp-", r"\d-[A-Za-z0-9]{8,16}-\d{8,16}-[0-9a-f]{32,80}"),
    _format("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,250}"),
    _format("webhook-secret", "whsec_", _B64 + "{24,80}" + _PAD),
    _format("twilio-key", "SK", r"[0-9a-f]{32}" + _END),
    _format("sendgrid-key", "SG.", r"[\w-]{16,32}\.[\w-]{32,64}"),
    _format("mailgun-key", "key-", r"[0-9a-f]{32}" + _END),
    _format("brevo-key", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    _format("resend-key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{24}" + _END),
    _format("hubspot-token", "pat-na1- pat-na2- pat-na3- pat-eu1- pat-ap1-", _UUID),
    _format("razorpay-key", "rzp_live_ rzp_test_", r"[A-Za-z0-9]{14}" + _END),
    _format("shippo-token", "shippo_live_ shippo_test_", r"[0-9a-f]{40}" + _END),
    _format("linear-key", "lin_api_", r"[A-Za-z0-9]{32,48}"),
    _format("linear-key", "lin_oauth_", r"[0-9a-f]{64}"),
    _format("notion-token", "ntn_", r"[A-Za-z0-9]{40,50}"),
    _format("notion-token", "secret_", r"[A-Za-z0-9]{43}" + _END),
    _format("figma-token", "figd_ figu_ figo_ figdr_ figur_ figor_", r"[\w-]{30,60}"),
    _format("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    _format("square-token", "EAAA", r"[\w-]{60}(?![\w-])"),
    _format("square-token", "sq0atp- sq0csp-", r"[\w-]{22,43}"),
    _format("facebook-token", "EAAC EAAB EAAG EAAM", r"[A-Za-z0-9]{60,300}" + _END),
    _format("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _format("grafana-token", "glc_", _B64 + "{32,400}" + _PAD),
    _format("grafana-token", "eyJrIjoi", r"[A-Za-z0-9+/]{50,400}={0,2}(?![.\w-])"),
    _format("newrelic-key", "NRAK- NRII- NRRA- NRJS- NRAA-", r"[A-Za-z0-9_-]{19,40}"),
    _format("sentry-token", "sntrys_", r"eyJ[A-Za-z0-9+/=_-]{60,500}"),
    _format("sentry-token", "sntryu_", r"[0-9a-f]{64}"),
    _format("postman-key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    _format("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _format("dropbox-token", "sl.", r"(?:u\.)?[\w-]{100,2000}"),
    _format("contentful-token", "CFPAT-", r"[\w-]{43}"),
    _format("adafruit-key", "aio_", r"[A-Za-z0-9]{28}" + _END),
    _format("posthog-key", "phx_", r"[A-Za-z0-9]{40,50}"),
    _format("typeform-token", "tfp_", r"[\w-]{40,60}"),
    _format("easypost-key", "EZAK EZTK", r"[A-Za-z0-9]{54}" + _END),
    _format("duffel-token", "duffel_live_ duffel_test_", r"[\w=-]{43}"),
    _format("readme-key", "rdme_", r"[a-z0-9]{70}"),
    _format("wakatime-key", "waka_", _UUID),
    _format("flutterwave-key", "FLWSECK-", r"[0-9a-zA-Z]{32}-X"),
    _format("mapbox-token", "sk.eyJ", r"[\w-]{40,200}\.[\w-]{16,60}"),
)
_KEYS = (
    _format("age-key", "AGE-SECRET-KEY-1", r"[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    _format("nostr-key", "nsec1", r"[qpzry9x8gf2tvdw0s3jn54khce6mua7l]{58}"),
    _format("wallet-key", "xprv yprv zprv tprv", r"[1-9A-HJ-NP-Za-km-z]{100,112}"),
    _format("private-key", "b3BlbnNzaC1rZXktdjE", r"[A-Za-z0-9+/]{40,8000}={0,2}"),
    _format("jwt", "eyJ", _WORD_START + r"[\w-]{8,8192}+\.eyJ[\w-]{2,16384}+(?:\.[\w-]{1,8192}+)?"),
    _format("jwt", "eyJ", _WORD_START + r"[\w-]{8,8192}+\.[\w-]{0,2048}+(?:\.[\w-]{2,16384}+){3}"),
)

# Shapes without a literal beginning, tried where a run of token characters stands.
MAILCHIMP = re.compile(r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])")
MAILGUN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![A-Za-z0-9])")
TELEGRAM = re.compile(r"(?:(?<![0-9])|(?<=%22))\d{8,10}(?::|%3[Aa])AA[A-Za-z0-9_-]{33}")
DISCORD = re.compile(r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}")
TERRAFORM = re.compile(r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,100}")
WEBHOOK = re.compile(
    r"hook(?:s\.slack\.com/(?:services|workflows|triggers)/|s/(?=\d{17,20}/)|b2/|s\.zapier\.com/hooks/catch/)"
    r"(?P<secret>[A-Za-z0-9_@/-]{16,400}+)"
)
BEARER = re.compile(r"[Bb]earer(?:[ \t]|%20|\+){1,4}+(?P<secret>[A-Za-z0-9._~+/%-]{16,8192}+={0,2})")
AZURE_CLIENT_SECRET = re.compile(r"Q~(?<=[A-Za-z0-9_.~-]{3}\dQ~)[A-Za-z0-9_.~-]{31,34}")

FORMATS: tuple[Format, ...] = (*_MODELS, *_CODE_HOSTS, *_CLOUDS, *_SERVICES, *_KEYS)
