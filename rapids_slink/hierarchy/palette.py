"""The colours of clusters, the same in plots, in the explorer and in what it exports."""

#: Of the largest clusters, in order of size. The first six are Okabe and Ito's except black and yellow, which are
#: distinguishable with any kind of colour blindness.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1", "#66A61E", "#B15928", "#E7298A",
    "#17A2A2", "#8D8C12", "#FB8072", "#5E60CE", "#C49A6C", "#2CA02C", "#C51B7D", "#D4AC0D", "#CB4335", "#7FB3D5",
)  # fmt: skip
#: Of all other clusters; and of noise in the explorer, which recedes.
OTHERS, NOISE = "#999999", "#A0A0A060"
